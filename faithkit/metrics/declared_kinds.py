"""Finds the declared kind of a metric by its name in metrics.json."""

from collections.abc import Mapping

from faithkit.metrics.responses.response_columns import response_metrics
from faithkit.metrics.suppression import KINDS as SUPPRESSION_KINDS
from faithkit.statistics.metric import ACCURACY, CLASSIFICATION, ERROR_RATE, LANGUAGE_MODEL, PROPORTION, MetricKind

# Span metrics are declared by count and not by name; `rate` is of hallucinated turns.
KINDS: Mapping[str, MetricKind] = {
    **dict.fromkeys(("char_f1", "response_f1", "iou"), ACCURACY),
    **dict.fromkeys(("hallucination_rate", "rate"), ERROR_RATE),
    **SUPPRESSION_KINDS,
    **LANGUAGE_MODEL,
    **CLASSIFICATION,
}


def kind_of(name: str) -> MetricKind | None:
    """Finds the kind of a metric, of a baseline's (`overlap_macro_f1`), or of a difference; None if none is declared.

    >>> kind_of("test/begin/difference/overlap_macro_f1").low, kind_of("validation/wow/perplexity").higher_is_better
    (-1, False)
    """
    *parts, short = name.split("/")
    if "p_value" in parts:
        return PROPORTION
    words = short.split("_")
    suffixes = ("_".join(words[place:]) for place in range(len(words)))
    known = {**{name: metric.kind for name, metric in response_metrics().items()}, **KINDS}
    kind = next((known[suffix] for suffix in suffixes if suffix in known), None)
    return kind.of_differences if kind and "difference" in parts else kind


def is_lower_better(name: str) -> bool:
    """Reports whether a metric is declared to be better where it is lower."""
    return (kind := kind_of(name)) is not None and kind.higher_is_better is False
