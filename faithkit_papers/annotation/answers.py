"""Converts annotators' answers to tables of ratings: a row for each item, a column for each annotator.

Answers are JSON lines of {"id", "annotator", "answers": {question: answer}}, as `pipeline=annotate` writes them, with
"group" (the dialogue or source), "length" (the characters of the text in which spans are marked), and "system" with
"item" where several systems answered the same thing. The answers show the kind of a question: a list of labels
(nominal), a whole number (ordinal), or a list of spans.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_numbered_jsonl

MISSING = -1
NOMINAL, ORDINAL, SPANS = "nominal", "ordinal", "spans"
HINT = '{"id": "1", "annotator": "ann", "answers": {"verdict": ["yes"]}}'


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
            if (kind := _kind(answer)) is None:
                continue
            if kinds.setdefault(name, kind) != kind and answer:
                if kinds[name] == NOMINAL and kind == SPANS:  # an empty list may be either
                    kinds[name] = SPANS
                    continue
                problem = f"{name} has {kinds[name]} answers, and here {shorten(answer)}"
                raise UserError(problem, place=f"{place}, {one.item}", hint="give one kind of answer to a question")
    return kinds


def _kind(answer: Any) -> str | None:
    if isinstance(answer, int):
        return NOMINAL if isinstance(answer, bool) else ORDINAL
    if isinstance(answer, list) and answer and all(isinstance(span, dict) for span in answer):
        return SPANS
    if isinstance(answer, list) and all(isinstance(label, str) for label in answer):
        return NOMINAL
    return None


def ratings_of(answered: Sequence[Answered], question: str, kind: str) -> Ratings:
    """Makes the table of a nominal or ordinal question; each combination of labels is a category."""
    if kind == ORDINAL:
        return _table(answered, question, str)
    return _table(answered, question, lambda answer: " + ".join(sorted(labels_in(answer))))


def labels_of(answered: Sequence[Answered], question: str) -> dict[str, Ratings]:
    """Makes a table for each label of a question: whether it was chosen."""
    names = sorted({label for one in answered for label in labels_in(one.answers.get(question, ()))})
    return {
        name: _table(answered, question, lambda answer, name=name: str(int(name in labels_in(answer))))
        for name in names
    }


def labels_in(answer: Any) -> list[str]:
    """Lists the labels of an answer, which may be a single one."""
    return [str(answer)] if isinstance(answer, bool | str) else list(answer)


def _table(answered: Sequence[Answered], question: str, category: Any) -> Ratings:
    given = [one for one in answered if question in one.answers]
    names = [category(one.answers[question]) for one in given]
    is_number = all(name.lstrip("-").isdigit() for name in names)
    categories = sorted(set(names), key=int if is_number else None)
    items, annotators = list(dict.fromkeys(one.item for one in given)), sorted({one.annotator for one in given})
    places = {item: place for place, item in enumerate(items)}
    groups = {one.item: one.group for one in given}
    values = np.full((len(items), len(annotators)), MISSING, np.int64)
    for one, name in zip(given, names, strict=True):
        values[places[one.item], annotators.index(one.annotator)] = categories.index(name)
    return Ratings(values, tuple(categories), tuple(groups[item] for item in items), tuple(annotators))
