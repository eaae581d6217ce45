"""The report of a test set with labels: classification metrics beside their baselines, predictions to judge by eye."""

from collections.abc import Mapping, Sequence

from faithkit.evaluation.baselines import overlap_predictions
from faithkit.evaluation.classification import classification_metrics
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.reports.provenance import Provenance, Rows, select, with_provenance
from faithkit.evaluation.reports.report import Report, sample_row
from faithkit.evaluation.tables import choose_examples, metrics_table, predictions_table
from faithkit.records import Example, Prediction

OVERLAP = "overlap_"  # the baseline's metrics stand beside the detector's, under names of their own
SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # the others stand in metrics.json
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")


def label_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    fitted_on: Sequence[Example] = (),
    num_resamples: int = 1000,
    num_examples: int = 5,
    origin: Provenance | None = None,
) -> Report:
    """Classification metrics, with those of the word-overlap baseline as `overlap_...`.

    Args:
        origin: Where the predictions are from; None leaves it out.
    """
    scored = classification_metrics(examples, predictions, num_resamples=num_resamples)
    overlap = classification_metrics(examples, overlap_predictions(examples, fitted_on), num_resamples=num_resamples)
    baseline = {n: m for n, m in overlap.metrics.items() if n in SHOWN_OF_BASELINE}
    columns = {
        "model": {n: m for n, m in scored.metrics.items() if n in SHOWN},
        "majority": {n: scored.metrics[f"majority_{n}"] for n in ("macro_f1", "accuracy")},
        "word overlap": baseline,
    }
    tables = [metrics_table(columns, title=title)]
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    metrics = scored.metrics | {OVERLAP + n: m for n, m in baseline.items()}
    samples = [sample_row(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    report = Report(metrics=metrics, tables=tuple(tables), notes=scored.notes, samples=tuple(samples))
    if origin is None:
        return report

    def score(rows: Rows) -> Mapping[str, Metric]:
        return classification_metrics(*select(examples, predictions, rows), num_resamples=num_resamples).metrics

    return with_provenance(report, origin, score, title=title, shown=SHOWN)
