"""The report of a test set with labels: classification metrics beside their baselines, predictions to judge by eye."""

from collections.abc import Mapping, Sequence

from faithkit.evaluation.baselines import overlap_predictions
from faithkit.evaluation.cheap_baselines import CountedFeatures
from faithkit.evaluation.classification import classification_metrics, compare
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.reports.report import Report, sample_row
from faithkit.evaluation.tables import choose_examples, format_metric, metrics_table, predictions_table
from faithkit.records import Example, Prediction

# The baselines' metrics stand beside the detector's, under names of their own, and so does what it has over the trees.
OVERLAP, COUNTED, OVER_COUNTED = "overlap_", "counted_", "over_counted_"
SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # the others stand in metrics.json
COMPARED = ("macro_f1", "auroc")
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")


def label_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    fitted_on: Sequence[Example] = (),
    counted: CountedFeatures | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Report:
    """Classification metrics, with those of the word-overlap baseline as `overlap_...`.

    Args:
        counted: Boosted trees that were fitted on the detector's training rows. Their metrics stand beside as
            `counted_...`, the paired differences from them as `over_counted_...`.
    """
    scored = classification_metrics(examples, predictions, num_resamples=num_resamples)
    overlap = classification_metrics(examples, overlap_predictions(examples, fitted_on), num_resamples=num_resamples)
    baseline = {n: m for n, m in overlap.metrics.items() if n in SHOWN_OF_BASELINE}
    columns = {
        "model": {n: m for n, m in scored.metrics.items() if n in SHOWN},
        "majority": {n: scored.metrics[f"majority_{n}"] for n in ("macro_f1", "accuracy")},
        "word overlap": baseline,
    }
    notes = scored.notes
    metrics = scored.metrics | {OVERLAP + n: m for n, m in baseline.items()}
    if counted is not None:
        found = counted.predictions(examples)
        others = classification_metrics(examples, found, num_resamples=num_resamples).metrics
        columns["counted features"] = {n: m for n, m in others.items() if n in SHOWN_OF_BASELINE}
        metrics |= {COUNTED + n: m for n, m in columns["counted features"].items()}
        gains = compare(examples, predictions, found, num_resamples=num_resamples)
        over = {
            n: Metric(value=d.value, low=d.low, high=d.high, n=d.n) for n, d in gains.items() if n in SHOWN_OF_BASELINE
        }
        metrics |= {OVER_COUNTED + n: m for n, m in over.items()}
        majority = columns.pop("majority")["macro_f1"]  # four columns do not fit into 80 characters
        notes = (*_gains(over), f"the majority class gives macro_f1 {format_metric(majority)}", *notes)
    tables = [metrics_table(columns, title=title)]
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    samples = [sample_row(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    return Report(metrics=metrics, tables=tuple(tables), notes=notes, samples=tuple(samples))


def _gains(over: Mapping[str, Metric]) -> list[str]:
    """Says what the detector has over counted features."""
    shown = (
        f"{name} {over[name].value:+.2f} [{over[name].low:+.2f}, {over[name].high:+.2f}]"
        for name in COMPARED
        if name in over
    )
    return [f"model - counted features (boosted trees on the same rows): {', '.join(shown)}"] if over else []
