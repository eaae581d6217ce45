"""Measures agreement on labels, ratings and spans.

Those of labels and ratings are 1 - (observed disagreement) / (disagreement by chance), and differ in their definition
of chance:

    cohen_kappa          two annotators, each with separate shares; for more, the mean over all pairs (Cohen 1960)
    fleiss_kappa         any number, with common shares (Fleiss 1971)
    randolph_kappa       the same, with equal shares of all categories (Randolph 2005)
    alpha, alpha_ordinal any number, missing ratings allowed, corrected for few items (Krippendorff 2004)

DiaHalu cites Randolph 2005 and prints the formula of Fleiss' kappa for two categories; both are computed. They need the
same number of ratings for every item: items with another number than most are left out and counted. Alpha uses every
item with two or more ratings. If all ratings are equal, none is defined.

All are computed from weighted sums over groups, since a bootstrap evaluates them a thousand times. The tests compare
the values with those of statsmodels and krippendorff.

Of spans it measures where annotators mark something, and with which label:

    char_f1        2 x characters that both of a pair mark / (those of one + those of the other), summed over pairs and
                   items: what RAGTruth calls span-level F1, with one annotator as the other's gold
    typed_char_f1  the same, where a character counts only with the same label
    char_alpha     Krippendorff's nominal alpha with each character as a unit, and the labels on it (or none) as its
                   category: chance is the share of each label over all texts

An annotator who did not see an item differs from one who marked nothing. Undefined measures are left out: all if there
are no spans.

Answers are JSON lines of {"id", "annotator", "answers": {question: answer}}, as `pipeline=annotate` writes them, with
"group" (the dialogue or source), "length" (the characters of the text in which spans are marked), and "system" with
"item" where several systems answered the same thing. The answers show the kind of a question: a list of labels
(nominal), a whole number (ordinal), or a list of spans. They become ratings: a row for each item, a column for each
annotator.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_numbered_jsonl
from faithkit.metrics.judging import cohen_kappa
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import ACCURACY, CORRELATION, PROPORTION, Metric
from faithkit.statistics.spread import Statistic, Values

MISSING = -1
NOMINAL, ORDINAL, SPANS = "nominal", "ordinal", "spans"
HINT = '{"id": "1", "annotator": "ann", "answers": {"verdict": ["yes"]}}'
OBSERVED = "agreement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One annotator's answers to one item."""

    item: str
    annotator: str
    group: str
    answers: Mapping[str, Any]
    length: int | None = None
    system: str | None = None
    context: str = ""  # the same for all systems that answered it


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of items by annotators.

    Args:
        values: [items, annotators], the index of the category, or MISSING.
        categories: In order, where they have one.
        groups: The group of each item.
    """

    values: NDArray[np.int64]
    categories: tuple[str, ...]
    groups: tuple[str, ...]
    annotators: tuple[str, ...]

    def counts(self) -> NDArray[np.float64]:
        """Counts, for each item, the annotators who chose each category: [items, categories]."""
        chosen = self.values[:, :, None] == np.arange(len(self.categories))
        return chosen.sum(axis=1).astype(np.float64)

    def only(self, rows: NDArray[np.bool_]) -> "Ratings":
        """Keeps some of the items."""
        groups = tuple(group for group, kept in zip(self.groups, rows, strict=True) if kept)
        return replace(self, values=self.values[rows], groups=groups)


def read_answers(path: str | Path) -> list[Answered]:
    """Reads answers.

    Raises:
        UserError: A row without id, annotator or answers, one annotator twice on an item, or no rows.
    """
    found: dict[tuple[str, str], Answered] = {}
    for line, row in read_numbered_jsonl(path):
        place = f"{path}, line {line}"
        for name, kind in (("id", str), ("annotator", str), ("answers", dict)):
            if not isinstance(row.get(name), kind) or (kind is str and not row[name]):
                words = "a text" if kind is str else "an object"
                raise UserError(f"{name} must be {words}, got {shorten(row.get(name))}", place=place, hint=HINT)
        item, annotator = row["id"], row["annotator"]
        if (item, annotator) in found:
            problem = f"{shorten(annotator)} has answered {shorten(item)} before"
            raise UserError(problem, place=place, hint="keep one line for each item and annotator")
        found[item, annotator] = Answered(
            item=item,
            annotator=annotator,
            group=str(row.get("group") or item),
            answers=row["answers"],
            length=row.get("length"),
            system=row.get("system"),
            context=str(row.get("item") or item),
        )
    if not found:
        raise UserError("the file holds no answers", place=str(path), hint=HINT)
    return list(found.values())


def questions_of(answered: Iterable[Answered], place: str) -> dict[str, str]:
    """Finds the questions in their order, with the kind of their answers; free texts are left out.

    Raises:
        UserError: A question has answers of several kinds.
    """
    kinds: dict[str, str] = {}
    for one in answered:
        for name, answer in one.answers.items():
            if isinstance(answer, int):
                kind = NOMINAL if isinstance(answer, bool) else ORDINAL
            elif isinstance(answer, list) and answer and all(isinstance(span, dict) for span in answer):
                kind = SPANS
            elif isinstance(answer, list) and all(isinstance(label, str) for label in answer):
                kind = NOMINAL
            else:
                continue
            if kinds.setdefault(name, kind) != kind and answer:
                if kinds[name] == NOMINAL and kind == SPANS:  # an empty list may be either
                    kinds[name] = SPANS
                    continue
                problem = f"{name} has {kinds[name]} answers, and here {shorten(answer)}"
                raise UserError(problem, place=f"{place}, {one.item}", hint="give one kind of answer to a question")
    return kinds


def labels_in(answer: Any) -> list[str]:
    """Lists the labels of an answer, which may be a single one."""
    return [str(answer)] if isinstance(answer, bool | str) else list(answer)


def ratings_of(answered: Sequence[Answered], question: str, kind: str, label: str | None = None) -> Ratings:
    """Makes the table of a nominal or ordinal question; each combination of labels is a category.

    Args:
        label: Makes the table of this label: whether it was chosen.
    """
    given = [one for one in answered if question in one.answers]
    names = []
    for answer in (one.answers[question] for one in given):
        chosen = [str(answer)] if kind == ORDINAL else sorted(labels_in(answer))
        names.append(" + ".join(chosen) if label is None else str(int(label in chosen)))
    is_number = all(name.lstrip("-").isdecimal() for name in names)
    categories = sorted(set(names), key=int if is_number else None)
    items, annotators = list(dict.fromkeys(one.item for one in given)), sorted({one.annotator for one in given})
    places = {item: place for place, item in enumerate(items)}
    groups = {one.item: one.group for one in given}
    values = np.full((len(items), len(annotators)), MISSING, np.int64)
    for one, name in zip(given, names, strict=True):
        values[places[one.item], annotators.index(one.annotator)] = categories.index(name)
    return Ratings(values, tuple(categories), tuple(groups[item] for item in items), tuple(annotators))


def measure(ratings: Ratings, *, ordinal: bool = False, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes every measure of one question with its interval over groups; `n` counts its items."""
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    rated = (ratings.values != MISSING).sum(axis=1)
    if not (rated >= 2).any():
        return ScoredMetrics(metrics={}, notes=("no item has two ratings: there is no agreement to measure",))
    several = ratings.only(rated >= 2)
    parts = [(_pairs(several), several), (_alphas(several, ordinal), several)]
    sizes, often = np.unique(rated[rated >= 2], return_counts=True)
    usual = int(sizes[often.argmax()])
    even = ratings.only(rated == usual)
    parts.append((_fleiss(even), even))
    if len(sizes) > 1:
        others = len(several.groups) - len(even.groups)
        notes.append(f"kappas of Fleiss and Randolph leave out {others:,} items that have not {usual} ratings")
    if alone := int((rated == 1).sum()):
        notes.append(f"{alone:,} items have a single rating and count nowhere")
    for statistic, items in parts:
        groups = Groups.of(items.groups)
        kinds = dict.fromkeys(statistic(np.ones((1, groups.count))), CORRELATION) | {OBSERVED: PROPORTION}
        found = bootstrap(groups, statistic, kinds=kinds, num_resamples=num_resamples)
        metrics |= found.metrics
        notes += [note for note in found.notes if note not in notes]
    return ScoredMetrics(metrics=metrics, notes=tuple(notes))


def _pairs(ratings: Ratings) -> Statistic:
    """Averages agreement and Cohen's kappa over pairs of annotators; pairs without a kappa are left out."""
    groups, size = Groups.of(ratings.groups), len(ratings.categories)
    sums = []
    for first, second in combinations(ratings.values.T, 2):
        both = (first != MISSING) & (second != MISSING)
        if not both.any():
            continue
        cells = (groups.index * size + first) * size + second
        tables = np.bincount(cells[both], minlength=groups.count * size * size)
        sums.append(tables.reshape(groups.count, -1).astype(np.float64))

    def statistic(weights: Values) -> dict[str, Values]:
        tables = np.stack([(weights @ table).reshape(-1, size, size) for table in sums], axis=1)  # [R, pairs, K, K]
        observed, kappa = cohen_kappa(tables)
        return {OBSERVED: _mean(observed), "cohen_kappa": _mean(kappa)}

    return statistic


def _mean(values: Values) -> Values:
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    return _divide(np.where(defined, values, 0).sum(axis=1), count)


def _divide(above: Values, below: Values) -> Values:
    """Divides; NaN where there is nothing to divide by."""
    defined = below > 1e-12
    return np.where(defined, above / np.where(defined, below, 1), np.nan)


def _fleiss(ratings: Ratings) -> Statistic:
    counts = ratings.counts()
    raters = counts.sum(axis=1)  # the same for every item
    agreeing = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))
    groups = Groups.of(ratings.groups)
    sums = groups.sums(np.column_stack([agreeing, np.ones(len(counts)), counts]))

    def statistic(weights: Values) -> dict[str, Values]:
        agreed, items, *chosen = (weights @ sums).T
        shares = np.stack(chosen, axis=1)
        shares = shares / shares.sum(axis=1, keepdims=True)
        observed, by_chance = agreed / items, (shares**2).sum(axis=1)
        equal = np.full_like(observed, 1 / len(ratings.categories))
        return {
            "fleiss_kappa": _divide(observed - by_chance, 1 - by_chance),
            "randolph_kappa": _divide(observed - equal, 1 - equal),
        }

    return statistic


def _alphas(ratings: Ratings, ordinal: bool) -> Statistic:
    counts = ratings.counts()
    size = len(ratings.categories)
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(size) * counts[:, None, :]
    coincidences = pairs / (counts.sum(axis=1) - 1)[:, None, None]
    sums = Groups.of(ratings.groups).sums(coincidences.reshape(len(counts), -1))

    def statistic(weights: Values) -> dict[str, Values]:
        observed = (weights @ sums).reshape(-1, size, size)
        found = {"alpha": alpha(observed, 1 - np.eye(size))}
        if ordinal:
            totals = observed.sum(axis=2)
            # Two categories are as far apart as there are ratings between their middles.
            middles = np.cumsum(totals, axis=1) - totals / 2
            found["alpha_ordinal"] = alpha(observed, (middles[:, :, None] - middles[:, None, :]) ** 2)
        return found

    return statistic


def alpha(coincidences: Values, distances: Values) -> Values:
    """Computes Krippendorff's alpha of coincidence matrices [R, K, K]: 1 - (n - 1) sum(o d) / sum(n_c n_k d)."""
    totals = coincidences.sum(axis=2)
    n = totals.sum(axis=1)
    disagreed = (coincidences * distances).sum(axis=(1, 2))
    by_chance = (totals[:, :, None] * totals[:, None, :] * distances).sum(axis=(1, 2))
    return 1 - _divide((n - 1) * disagreed, by_chance)


def pair_kappas(ratings: Ratings) -> dict[str, float]:
    """Computes Cohen's kappa of each pair of annotators, `one ~ other`; pairs without a kappa are left out."""
    from sklearn.metrics import cohen_kappa_score

    found = {}
    for (one, first), (other, second) in combinations(zip(ratings.annotators, ratings.values.T, strict=True), 2):
        both = (first != MISSING) & (second != MISSING)
        if len({*first[both], *second[both]}) > 1:  # else undefined
            found[f"{one} ~ {other}"] = float(cohen_kappa_score(first[both], second[both]))
    return found


@dataclass(frozen=True, slots=True)
class Marked:
    """The spans that the annotators of one item marked: (start, end, label) by annotator."""

    group: str
    length: int
    spans: Mapping[str, Sequence[tuple[int, int, str]]]


def marked_items(answered: Iterable[Answered], question: str, place: str) -> list[Marked]:
    """Collects the spans of each item that two annotators or more have answered.

    Raises:
        UserError: An answer is not a list of spans, a text's length is missing, or a span leaves its text.
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
        marked: dict[str, list[Any]] = {}
        for one in given:
            marked[one.annotator] = []
            for span in one.answers[question]:
                keys = ("start", "end", "label")
                start, end, label = [span.get(key) if isinstance(span, Mapping) else None for key in keys]
                is_place = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= length
                if not (is_place and isinstance(label, str)):
                    hint = f'{{"start": 0, "end": {length}, "label": "..."}} at most'
                    problem = f"no span of a text of {length} characters: {shorten(span)}"
                    raise UserError(problem, place=where, hint=hint)
                marked[one.annotator].append((start, end, label))
        found.append(Marked(given[0].group, length, marked))
    return found


def evaluate_spans(items: Sequence[Marked], label: str | None = None, *, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes the three measures with intervals over groups; `n` counts the items that two annotators saw.

    Args:
        label: Measures the spans of this label alone.
    """
    if not items:
        return ScoredMetrics(metrics={}, notes=("no item has two annotators: there is no agreement to measure",))
    groups = Groups.of(item.group for item in items)
    # A text is cut where any annotation changes: the length of each piece, and each annotator's labels on it.
    pieces: list[list[tuple[int, list[frozenset[str]]]]] = []
    for item in items:
        of_annotators = [[span for span in spans if label in (None, span[2])] for spans in item.spans.values()]
        edges = {0, item.length} | {edge for spans in of_annotators for span in spans for edge in span[:2]}
        cut = []
        for start, end in pairwise(sorted(edges)):
            given = [
                frozenset(name for first, last, name in spans if first <= start and end <= last)
                for spans in of_annotators
            ]
            cut.append((end - start, given))
        pieces.append(cut)
    # A category is a set of labels. Characters that both of a pair mark, with any label and with the same, and those
    # of one plus the other; and Krippendorff's coincidences of characters.
    names = sorted({labels for of_item in pieces for _, given in of_item for labels in given}, key=sorted)
    index, size = {name: place for place, name in enumerate(names)}, len(names)
    counted = np.zeros((len(items), size, size))
    marked = np.zeros((len(items), 4))
    for place, of_item in enumerate(pieces):
        for length, given in of_item:
            counts = np.bincount([index[labels] for labels in given], minlength=size)
            counted[place] += length * (np.outer(counts, counts) - np.diag(counts)) / (len(given) - 1)
            for first, second in combinations(given, 2):
                both, either = bool(first) and bool(second), bool(first) + bool(second)
                marked[place] += np.multiply(length, (both, len(first & second), either, len(first) + len(second)))
    characters, overlaps = groups.sums(counted.reshape(len(items), -1)), groups.sums(marked)

    def statistic(weights: Values) -> dict[str, Values]:
        both, both_typed, either, either_typed = (weights @ overlaps).T
        return {
            "char_f1": _divide(2 * both, either),
            "typed_char_f1": _divide(2 * both_typed, either_typed),
            "char_alpha": alpha((weights @ characters).reshape(-1, size, size), 1 - np.eye(size)),
        }

    kinds = {"char_f1": ACCURACY, "typed_char_f1": ACCURACY, "char_alpha": CORRELATION}
    return bootstrap(groups, statistic, kinds=kinds, num_resamples=num_resamples)
