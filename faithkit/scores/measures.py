"""The table of all measures: what the values of each can be, which direction is better, and how tables show it.

A new metric is a function that computes it and an entry here; a metric of generated responses in another package brings
its entry with `compute` (docs/project/extending.md). Modules look their kinds up when they are imported, so a metric
without an entry is an error before any run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from faithkit.errors import UserError
from faithkit.packages import METRICS, load_object, load_plugins
from faithkit.statistics.metric import (
    ACCURACY,
    CALIBRATION_ERROR,
    COST,
    ERROR_RATE,
    PROPORTION,
    REDUCTION,
    SIMILARITY,
    MetricKind,
)

PERCENT, PLAIN = 100.0, 1.0
MACRO_F1, CRITIC_RATE = "macro_f1", "critic_rate"
BLEU_SCORE = MetricKind(low=0, high=100, higher_is_better=True)
AMOUNT = MetricKind(low=0)
COSINE = MetricKind(high=1, higher_is_better=True)  # rescaled, texts without anything in common may be far below 0


@dataclass(frozen=True, slots=True)
class Measure:
    """Declares a metric.

    Args:
        title: Its name in tables; empty where it is only in metrics.json and the scores file.
        scale: What its values are multiplied by in tables.
        compute: For a metric of another package, from examples and responses: makes the value of each response, NaN
            where it does not apply.
    """

    title: str
    kind: MetricKind
    scale: float = PERCENT
    compute: Callable[[Sequence[Any], Sequence[str]], Any] | None = None


LABELS: Mapping[str, Measure] = {
    MACRO_F1: Measure("macro-F1", ACCURACY),
    "f1": Measure("F1", ACCURACY),
    "precision": Measure("precision", ACCURACY),
    "recall": Measure("recall", ACCURACY),
    "faithful_f1": Measure("F1 of the faithful", ACCURACY),
    "mean_precision": Measure("mean precision", ACCURACY),
    "mean_recall": Measure("mean recall", ACCURACY),
    "accuracy": Measure("accuracy", ACCURACY),
    "balanced_accuracy": Measure("balanced acc.", ACCURACY),
    "auroc": Measure("AUROC", ACCURACY),
    "average_precision": Measure("AP", ACCURACY),
    "ece": Measure("ECE", CALIBRATION_ERROR),
    "brier": Measure("Brier score", ERROR_RATE),
    "unparsed_rate": Measure("unparsed", ERROR_RATE),
    "predicted_rate": Measure("called", PROPORTION),
    "gold_rate": Measure("labelled", PROPORTION),
    "majority_accuracy": Measure("accuracy of the majority", PROPORTION),
    "majority_macro_f1": Measure("macro-F1 of the majority", PROPORTION),
}
SPANS: Mapping[str, Measure] = {
    "char_f1": Measure("character F1", ACCURACY),
    "response_f1": Measure("response F1", ACCURACY),
    "iou": Measure("IoU", ACCURACY),
}
LANGUAGE_MODEL: Mapping[str, Measure] = {
    "loss": Measure("loss", COST, PLAIN),
    "perplexity": Measure("perplexity", COST, PLAIN),
    "token_accuracy": Measure("token accuracy", SIMILARITY),
}
COMPARING: Mapping[str, Measure] = {
    "accuracy": LABELS["accuracy"],
    "accuracy_first": Measure("hallucinated first", ACCURACY),
    "accuracy_last": Measure("hallucinated last", ACCURACY),
    "both_orders": Measure("right in both orders", ACCURACY),
    "combined_accuracy": Measure("accuracy, orders combined", ACCURACY),
    "invalid_rate": Measure("invalid", ERROR_RATE),
    "position_bias": Measure("bias to the first", MetricKind(low=-1, high=1)),
}
RATES: Mapping[str, Measure] = {
    "hallucination_rate": Measure("hallucinated", ERROR_RATE),
    "rate": Measure("hallucinated", ERROR_RATE),  # of turns
    "relative_reduction": Measure("reduction", REDUCTION),
    "relative_reduction_same_sources": Measure("reduction on the same sources", REDUCTION),
}
RATIONALES: Mapping[str, Measure] = {
    "rouge_l": Measure("ROUGE-L", ACCURACY),
    "bleu_4": Measure("BLEU-4", ACCURACY),
    "located_rate": Measure("located", ACCURACY),
    "char_f1": SPANS["char_f1"],
    "char_precision": Measure("character precision", ACCURACY),
    "char_recall": Measure("character recall", ACCURACY),
    "bertscore_precision": Measure("BERTScore P", COSINE),
    "bertscore_recall": Measure("BERTScore R", COSINE),
    "bertscore_f1": Measure("BERTScore F1", COSINE),
    "bertscore_rescaled": Measure("BERTScore F1, rescaled", COSINE),
}
# In the order of the tables.
RESPONSES: Mapping[str, Measure] = {
    CRITIC_RATE: Measure("critic: hallucinated", ERROR_RATE),
    "official_critic_rate": Measure("critic at 0.5: hallucinated", ERROR_RATE),
    "critic_score": Measure("", MetricKind(low=0, high=1, higher_is_better=False)),
    "q2_f1": Measure("Q2 F1", SIMILARITY),
    "q2_nli": Measure("Q2 NLI", SIMILARITY),
    "official_q2_f1": Measure("official Q2 F1", SIMILARITY),
    "official_q2_nli": Measure("official Q2 NLI", SIMILARITY),
    **{name: RATIONALES[name] for name in ("bertscore_precision", "bertscore_recall", "bertscore_f1")},
    "official_bertscore": Measure("official BERTScore", COSINE),
    "knowledge_f1": Measure("knowledge F1", SIMILARITY),
    "official_f1": Measure("official F1", SIMILARITY),
    "official_bleu": Measure("official BLEU, knowledge", BLEU_SCORE, PLAIN),
    "density": Measure("density, tokens", AMOUNT, PLAIN),
    "coverage": Measure("coverage", SIMILARITY),
    "bleu": Measure("BLEU", BLEU_SCORE, PLAIN),
    "sentence_bleu": Measure("", BLEU_SCORE, PLAIN),
    "rouge_1": Measure("ROUGE-1", SIMILARITY),
    "rouge_2": Measure("ROUGE-2", SIMILARITY),
    "rouge_l": Measure("ROUGE-L", SIMILARITY),
    "distinct_1": Measure("distinct-1", SIMILARITY),
    "distinct_2": Measure("distinct-2", SIMILARITY),
    "num_words": Measure("words", AMOUNT, PLAIN),
    "fallback": Measure("fallback", PROPORTION),
    "fallback_unanswerable": Measure("  if unanswerable", PROPORTION),
    "fallback_answerable": Measure("  if answerable", PROPORTION),
}


def kinds_of(measures: Mapping[str, Measure]) -> dict[str, MetricKind]:
    """Collects the kinds of a part of the table by name."""
    return {name: one.kind for name, one in measures.items()}


CLASSIFICATION = kinds_of(LABELS)


def titles_of(names: Iterable[str]) -> dict[str, str]:
    """Collects the titles of measures by name; a name without an entry is an error."""
    return {name: _declared()[name].title for name in names}


@cache
def response_measures() -> dict[str, Measure]:
    """Returns every metric of responses by name: also those of entry points of `faithkit.metrics`, and named ones."""
    return {**RESPONSES, **{n: m for n, m in load_plugins(METRICS, Measure).items() if m.compute}}


def add_measures(names: Sequence[str]) -> None:
    """Adds metrics of responses that a command names as `module:NAME`; each has the lower-case NAME.

    Raises:
        UserError: An object cannot be imported, or is not a measure with `compute`.
    """
    for name in names:
        measure = load_object(name)
        if not isinstance(measure, Measure) or measure.compute is None:
            raise UserError(f"{name} is not a Measure with compute=", hint="see docs/project/extending.md")
        response_measures()[name.rpartition(":")[2].lower()] = measure
        _declared.cache_clear()


@cache
def _declared() -> dict[str, Measure]:
    return {**COMPARING, **RATIONALES, **response_measures(), **SPANS, **RATES, **LANGUAGE_MODEL, **LABELS}


def measure_of(name: str) -> Measure | None:
    """Finds the measure of a metric in metrics.json, also of a baseline's; None if none is declared.

    >>> measure_of("test/begin/overlap_macro_f1").title, measure_of("validation/wow/perplexity").scale
    ('macro-F1', 1.0)
    """
    words, declared = name.rpartition("/")[2].split("_"), _declared()
    suffixes = ("_".join(words[place:]) for place in range(len(words)))
    return next((declared[suffix] for suffix in suffixes if suffix in declared), None)


def kind_of(name: str) -> MetricKind | None:
    """Finds the kind of a metric in metrics.json, of a difference or of a p-value; None if none is declared.

    >>> kind_of("test/begin/difference/overlap_macro_f1").low, kind_of("validation/wow/perplexity").higher_is_better
    (-1, False)
    """
    parts = name.split("/")[:-1]
    if "p_value" in parts:
        return PROPORTION
    measure = measure_of(name)
    if measure is None:
        return None
    return measure.kind.of_differences if "difference" in parts else measure.kind


def is_lower_better(name: str) -> bool:
    """Reports whether a metric is declared to be better where it is lower."""
    return (kind := kind_of(name)) is not None and kind.higher_is_better is False
