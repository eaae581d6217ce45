"""Reads the classes of a critic from elsewhere, each as faithful or hallucinated."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS

# By the number of a class or by the name that its configuration gives it.
ClassLabels: TypeAlias = Mapping[int | str, str]
EXAMPLE = f"labels={{0: {FAITHFUL}, 1: {HALLUCINATED}}}"
HINT = f"say what each class means: {EXAMPLE}, in quotes on the command line"


def hallucinated_classes(names: Sequence[str], labels: ClassLabels | None, place: str) -> tuple[bool, ...]:
    """Tells of each class of a model whether it means hallucinated.

    Args:
        names: Of the classes, as the model's configuration has them.
        labels: What they mean; None where their names are faithful and hallucinated.

    Raises:
        UserError: Names that say nothing and no labels, or labels that do not go with the names.
    """
    lowered = [str(name).lower() for name in names]
    have = f"classes are {', '.join(f'{number}: {shorten(name, 30)}' for number, name in enumerate(names))}"
    if labels is None:
        if sorted(lowered) != sorted(LABELS):
            raise UserError(f"a critic from elsewhere whose {have}", place=place, hint=HINT)
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
        said = ", ".join(f"{shorten(key)}: {meaning}" for key, meaning in labels.items()) or "nothing"
        problem = f"labels says {said}; it must name every class, and both meanings. The {have}"
        raise UserError(problem, place=place, hint=HINT)
    return tuple(meanings[number] == HALLUCINATED for number in range(len(names)))


def _number(key: Any, names: Sequence[str]) -> int | None:
    """Finds a class by its number or its name; None where there is no such class."""
    if isinstance(key, str):
        if key.lower() in names:
            return names.index(key.lower())
        key = int(key) if key.isdecimal() else None
    return key if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names) else None
