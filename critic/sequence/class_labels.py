"""Reads the meaning of an external classifier's classes: faithful or hallucinated."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS

# By the number or the name of a class.
ClassLabels: TypeAlias = Mapping[int | str, str]
EXAMPLE = f"labels={{0: {FAITHFUL}, 1: {HALLUCINATED}}}"
HINT = f"give the meaning of each class: {EXAMPLE}, in quotes on the command line"


def hallucinated_classes(names: Sequence[str], labels: ClassLabels | None, place: str) -> tuple[bool, ...]:
    """Returns for each class of a model whether it means hallucinated.

    Args:
        names: The names of the classes in the model's configuration.
        labels: The meaning of the classes; None if their names are faithful and hallucinated.

    Raises:
        UserError: The meaning of a class is unknown, or the labels do not match the classes.
    """
    lowered = [str(name).lower() for name in names]
    have = f"classes are {', '.join(f'{number}: {shorten(name, 30)}' for number, name in enumerate(names))}"
    if labels is None:
        if sorted(lowered) != sorted(LABELS):
            raise UserError(f"this external classifier's {have}", place=place, hint=HINT)
        labels = dict(enumerate(lowered))
    if not isinstance(labels, Mapping):
        raise UserError(f"labels must be a mapping, got {shorten(labels)}", hint=f"use {EXAMPLE}")
    meanings: dict[int, str] = {}
    for key, meaning in labels.items():
        number = _number(key, lowered)
        if number is None or number in meanings:
            problem = f"labels names class {shorten(key)}{' twice' if number is not None else ''}; the {have}"
            raise UserError(problem, place=place, hint=HINT)
        if meaning not in LABELS:
            problem = f"labels gives class {shorten(key)} the meaning {shorten(meaning)}"
            raise UserError(problem, hint=f"use {' or '.join(LABELS)}")
        meanings[number] = meaning
    if len(meanings) < len(names) or len(set(meanings.values())) < len(LABELS):
        given = ", ".join(f"{shorten(key)}: {meaning}" for key, meaning in labels.items()) or "empty"
        problem = f"labels is {given}; it must have every class and both meanings. The {have}"
        raise UserError(problem, place=place, hint=HINT)
    return tuple(meanings[number] == HALLUCINATED for number in range(len(names)))


def _number(key: Any, names: Sequence[str]) -> int | None:
    """Finds a class by its number or its name; returns None if there is no such class."""
    if isinstance(key, str):
        if key.lower() in names:
            return names.index(key.lower())
        key = int(key) if key.isdecimal() else None
    return key if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names) else None
