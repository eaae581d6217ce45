"""Baselines for any detector: counting or marking words that the knowledge lacks, and the response's length."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf, nextafter
from statistics import median
from typing import NamedTuple

from faithkit.calibration.thresholds import choose_threshold, predict_by_threshold
from faithkit.records import HALLUCINATED, UNTYPED, Example, Prediction, Span
from faithkit.words import unicode_words, word_places

RUN = 4  # characters that are compared together; a space parts words


def unsupported_share(knowledge: str, response: str) -> float:
    """Computes the share of the response's words that the knowledge lacks, case aside; 0 if there are no words."""
    known = set(unicode_words(knowledge))
    words = unicode_words(response)
    return sum(word not in known for word in words) / len(words) if words else 0.0


def unsupported_grams(knowledge: str, response: str) -> float:
    """Computes the share of the response's runs of four characters that the knowledge lacks, case and marks aside.

    Other forms of a known word share most of theirs, where `unsupported_share` takes them for unknown.
    """
    known, text = (f" {' '.join(unicode_words(each))} " for each in (knowledge, response))
    if text.isspace():
        return 0.0
    length = min(RUN, len(text))  # a word of one letter is shorter with its spaces
    has = {known[place : place + length] for place in range(len(known) - length + 1)}
    runs = [text[place : place + length] for place in range(len(text) - length + 1)]
    return sum(run not in has for run in runs) / len(runs)


def fit_overlap(train: Iterable[Example], aim: str = "macro_f1") -> float | None:
    """Chooses the threshold of `overlap_predictions` for `aim` on labelled examples; None if there are none."""
    known = [example for example in train if example.label]
    if not known:
        return None
    scores = [unsupported_share(example.knowledge, example.response) for example in known]
    return choose_threshold(scores, [example.label == HALLUCINATED for example in known], aim).value


def overlap_predictions(examples: Sequence[Example], threshold: float | None = None) -> dict[str, Prediction]:
    """Predicts hallucinated where too many of the response's words are not in the knowledge; their share is the score.

    Args:
        threshold: As `fit_overlap` gives it. Without one it lies above the median share of the evaluated examples,
            which uses no label: at most half of them are then called hallucinated.
    """
    shares = {example.id: unsupported_share(example.knowledge, example.response) for example in examples}
    if threshold is None:
        threshold = nextafter(median(shares.values()), inf) if shares else 0.5
    return predict_by_threshold(shares, shares.values(), threshold)


class LengthRule(NamedTuple):
    """Calls long responses hallucinated, from a threshold of `length_score` on; short ones where not `longer`."""

    threshold: float
    longer: bool = True

    def score(self, response: str) -> float:
        score = length_score(response)
        return score if self.longer else 1.0 - score


def length_score(response: str) -> float:
    """Maps a response's length in characters to [0, 1): a longer one scores more, 100 characters score a half."""
    return len(response) / (len(response) + 100)


def fit_length(train: Iterable[Example]) -> LengthRule | None:
    """Chooses the threshold of `length_predictions` on labelled examples, and whether long or short is wrong.

    None if there are no labelled examples.
    """
    known = [example for example in train if example.label]
    if not known:
        return None
    gold = [example.label == HALLUCINATED for example in known]
    rules = []
    for longer in (True, False):
        found = choose_threshold([LengthRule(0.0, longer).score(one.response) for one in known], gold)
        rules.append((found.macro_f1, LengthRule(found.value, longer)))
    return max(rules, key=lambda rule: rule[0])[1]


def length_predictions(examples: Sequence[Example], rule: LengthRule | None = None) -> dict[str, Prediction]:
    """Predicts from the length of the response alone.

    Hallucinated responses that were written on demand (HaluEval) are longer, and a detector that is no better than this
    one has learnt nothing else.

    Args:
        rule: As `fit_length` gives it. Without one, what is longer than the median of the examples is hallucinated,
            which uses no label.
    """
    if rule is None:
        scores = [length_score(example.response) for example in examples]
        rule = LengthRule(nextafter(median(scores), inf) if scores else 0.5)
    ids = (example.id for example in examples)
    return predict_by_threshold(ids, (rule.score(example.response) for example in examples), rule.threshold)


def unsupported_spans(knowledge: str, response: str) -> tuple[Span, ...]:
    """Marks each longest run of words that the knowledge lacks, case aside, as one span."""
    known = set(unicode_words(knowledge))
    runs: list[tuple[int, int]] = []
    goes_on = False
    for start, end, word in word_places(response):
        if word in known:
            goes_on = False
            continue
        runs.append((runs.pop()[0] if goes_on else start, end))
        goes_on = True
    return tuple(Span(start=start, end=end, label=UNTYPED) for start, end in runs)


def mismatch_predictions(examples: Sequence[Example], threshold: float | None = None) -> dict[str, Prediction]:
    """Adds to `overlap_predictions` a span for every run of unsupported words, in responses called faithful too."""
    called = overlap_predictions(examples, threshold)
    return {
        example.id: replace(prediction, spans=unsupported_spans(example.knowledge, example.response))
        for example, prediction in zip(examples, called.values(), strict=True)
    }
