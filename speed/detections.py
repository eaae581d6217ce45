"""Compares what two detectors, or two ways to run one, say of the same examples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.records import Example, Prediction
from faithkit.statistics.bootstrap import Difference

SHOWN = {"critic": ("macro_f1", "auroc"), "tagger": ("char_f1", "response_f1")}


def predict(detector: Any, examples: Sequence[Example]) -> dict[str, Prediction]:
    """Judges examples; gives the predictions by id."""
    return {prediction.id: prediction for prediction in detector.predict_examples(examples)}


def scores(predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> NDArray[np.float64]:
    """Gives the probabilities of predictions, in the order of the examples."""
    return np.array([predictions[example.id].score for example in examples], np.float64)


def difference(
    kind: str, examples: Sequence[Example], first: Mapping[str, Prediction], second: Mapping[str, Prediction]
) -> dict[str, Difference]:
    """Subtracts the second side's metrics from the first's, paired."""
    from faithkit.metrics.classification import compare_predictions
    from faithkit.metrics.span_metrics import compare_spans

    return compare_predictions(examples, first, second) if kind == "critic" else compare_spans(examples, first, second)


def levels(kind: str, examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> str:
    """Tells the metrics that are shown of one side."""
    from faithkit.metrics.classification import classification_metrics
    from faithkit.metrics.span_metrics import span_metrics

    score = classification_metrics if kind == "critic" else span_metrics
    found = score(examples, predictions).metrics
    return ", ".join(f"{name} {100 * found[name].value:.1f}" for name in SHOWN[kind])


def tell(change: Difference) -> str:
    """Tells a difference in points, with its interval."""
    return f"{100 * change.value:+.1f} [{100 * change.low:.1f}, {100 * change.high:.1f}]"
