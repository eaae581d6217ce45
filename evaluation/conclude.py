"""The end of every run: metrics with intervals beside their baselines, predictions to judge by eye, and the folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.records import Example, Prediction
from common.run_folder import RunFolder
from evaluation.baselines import overlap_predictions
from evaluation.classification import classification_metrics
from evaluation.intervals import Metric
from evaluation.results import full_names, write_results
from evaluation.tables import choose_examples, metrics_table, predictions_table, show

OVERLAP = "overlap_"  # the baseline's metrics stand beside the detector's, under names of their own
SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # the others stand in metrics.json
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")
TestSets = Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]]


def conclude(
    run: RunFolder,
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitted_on: Sequence[Example] = (),
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> dict[str, Metric]:
    """Scores each test set, writes metrics.json and prints it all; the run's path comes last.

    Args:
        sets: For each dataset its labelled examples and their predictions.
        fitted_on: Labelled examples that the word-overlap baseline chooses its threshold on.
        split: The first part of the metrics' names.
    """
    metrics: dict[str, Metric] = {}
    for name, (examples, predictions) in sets.items():
        if not examples:
            print(f"{name}: no test example has a label, so there is nothing to score")
            continue
        by_id = {prediction.id: prediction for prediction in predictions}
        scored = classification_metrics(examples, by_id, num_resamples=num_resamples)
        overlap = classification_metrics(
            examples, overlap_predictions(examples, fitted_on), num_resamples=num_resamples
        )
        baseline = {n: m for n, m in overlap.metrics.items() if n in SHOWN_OF_BASELINE}
        metrics |= full_names(split, name, scored.metrics)
        metrics |= full_names(split, name, {OVERLAP + n: m for n, m in baseline.items()})
        columns = {
            "model": {n: m for n, m in scored.metrics.items() if n in SHOWN},
            "majority": {n: scored.metrics[f"majority_{n}"] for n in ("macro_f1", "accuracy")},
            "word overlap": baseline,
        }
        show(metrics_table(columns, title=f"{split}/{name}"))
        for note in scored.notes:
            print(f"note: {note}")
        if num_examples:
            show(predictions_table(choose_examples(examples, by_id, num_examples), by_id, title="predictions to judge"))
    write_results(run.metrics, metrics, meta)
    print(run.path)
    return metrics
