"""Measures agreement on spans: where annotators mark something, and with which label.

    char_f1        2 x characters that both of a pair mark / (those of one + those of the other), summed over pairs and
                   items: what RAGTruth calls span-level F1, with one annotator as the other's gold
    typed_char_f1  the same, where a character counts only with the same label
    char_alpha     Krippendorff's nominal alpha with each character as a unit, and the labels on it (or none) as its
                   category: chance is the share of each label over all texts

An annotator who did not see an item differs from one who marked nothing. Undefined measures are left out: all if there
are no spans.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from construction.agreement.answers import Answered
from construction.agreement.measures import alpha
from faithkit.errors import UserError, shorten
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import ACCURACY, CORRELATION
from faithkit.statistics.spread import Statistic, Values

KINDS = {"char_f1": ACCURACY, "typed_char_f1": ACCURACY, "char_alpha": CORRELATION}


@dataclass(frozen=True, slots=True)
class Marked:
    """The spans that the annotators of one item marked: (start, end, label) by annotator."""

    group: str
    length: int
    spans: Mapping[str, Sequence[tuple[int, int, str]]]

    def only(self, label: str) -> "Marked":
        """Keeps the spans of one label."""
        kept = {name: [span for span in spans if span[2] == label] for name, spans in self.spans.items()}
        return Marked(self.group, self.length, kept)


def marked_items(answered: Iterable[Answered], question: str, place: str) -> list[Marked]:
    """Collects the spans of each item that two annotators or more have answered.

    Raises:
        UserError: An answer is no list of spans, a text's length is missing, or a span leaves its text.
    """
    items: dict[str, list[Answered]] = {}
    for one in answered:
        if question in one.answers:
            items.setdefault(one.item, []).append(one)
    found = []
    for name, given in items.items():
        if len(given) < 2:
            continue
        where = f"{place}, {name}"
        length = given[0].length
        if not isinstance(length, int) or any(one.length != length for one in given):
            hint = 'add "length": the number of characters of the text, the same in all lines of an item'
            raise UserError(f"length is {shorten([one.length for one in given])}", place=where, hint=hint)
        spans = {one.annotator: [_span(span, length, where) for span in one.answers[question]] for one in given}
        found.append(Marked(given[0].group, length, spans))
    return found


def _span(span: Any, length: int, place: str) -> tuple[int, int, str]:
    values = [span.get(name) for name in ("start", "end", "label")] if isinstance(span, Mapping) else [None] * 3
    start, end, label = values
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= length and isinstance(label, str):
        return start, end, label
    hint = f'{{"start": 0, "end": {length}, "label": "..."}} at most'
    raise UserError(f"no span of a text of {length} characters: {shorten(span)}", place=place, hint=hint)


def measure_spans(items: Sequence[Marked], *, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes the three measures with intervals over groups; `n` counts the items that two annotators saw."""
    if not items:
        return ScoredMetrics(metrics={}, notes=("no item has two annotators: there is no agreement to measure",))
    groups = Groups.of(item.group for item in items)
    return bootstrap(groups, _statistic(items, groups), kinds=KINDS, num_resamples=num_resamples)


def _statistic(items: Sequence[Marked], groups: Groups) -> Statistic:
    categories, counted = _coincidences(items)
    size = len(categories)
    characters = groups.sums(counted.reshape(len(items), -1))
    overlaps = groups.sums([_overlaps(item) for item in items])

    def statistic(weights: Values) -> dict[str, Values]:
        both, both_typed, either, either_typed = (weights @ overlaps).T
        return {
            "char_f1": _ratio(2 * both, either),
            "typed_char_f1": _ratio(2 * both_typed, either_typed),
            "char_alpha": alpha((weights @ characters).reshape(-1, size, size), 1 - np.eye(size)),
        }

    return statistic


def _ratio(above: Values, below: Values) -> Values:
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def _stretches(item: Marked) -> Iterator[tuple[int, list[frozenset[str]]]]:
    """Cuts a text where any annotation changes: the length of each piece, and each annotator's labels on it."""
    edges = {0, item.length} | {edge for spans in item.spans.values() for span in spans for edge in span[:2]}
    for start, end in pairwise(sorted(edges)):
        labels = (
            frozenset(label for first, last, label in spans if first <= start and end <= last)
            for spans in item.spans.values()
        )
        yield end - start, list(labels)


def _overlaps(item: Marked) -> tuple[float, float, float, float]:
    """Counts characters that both of a pair mark, with any label and with the same; and those of one plus the other."""
    both = both_typed = either = either_typed = 0
    for size, labels in _stretches(item):
        for first, second in combinations(labels, 2):
            both += size * (bool(first) and bool(second))
            either += size * (bool(first) + bool(second))
            both_typed += size * len(first & second)
            either_typed += size * (len(first) + len(second))
    return both, both_typed, either, either_typed


def _coincidences(items: Sequence[Marked]) -> tuple[list[frozenset[str]], Values]:
    """Computes Krippendorff's coincidences of characters, [items, K, K], with the sets of labels that they count."""
    found = [list(_stretches(item)) for item in items]
    names = sorted({labels for stretches in found for _, given in stretches for labels in given}, key=sorted)
    index = {name: place for place, name in enumerate(names)}
    counted = np.zeros((len(items), len(names), len(names)))
    for place, stretches in enumerate(found):
        for size, given in stretches:
            counts = np.bincount([index[labels] for labels in given], minlength=len(names))
            counted[place] += size * (np.outer(counts, counts) - np.diag(counts)) / (len(given) - 1)
    return names, counted
