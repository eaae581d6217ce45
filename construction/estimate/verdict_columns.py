"""Names the columns of verdicts in a table: those that scoring adds, and those that are read from it later.

Scoring adds `label`, `probability` and `spans`. If the table has one of these, all three are named `faithkit_label` and
so on; if it has one of those too, `faithkit_label_2`, then `_3`. So a table can have the verdicts of several detectors:
the newest have the highest number, and all columns of one detector have the same.
"""

import re
from collections.abc import Collection, Iterator, Sequence

LABEL, PROBABILITY = "label", "probability"
VERDICT = (LABEL, PROBABILITY, "spans")
USUAL_SCORES = (PROBABILITY, "score")  # in other tables
_ADDED = re.compile(r"faithkit_(.+?)(?:_([2-9]|[1-9]\d+))?")


def added_names(columns: Collection[str], names: Sequence[str]) -> dict[str, str]:
    """Names the columns to add: plainly, or with a number above those that exist."""
    last = _last(columns, names)
    return {name: _named(name, 0 if last is None else last + 1) for name in names}


def newest_names(columns: Collection[str], names: Sequence[str] = VERDICT) -> dict[str, str]:
    """Names the columns that were added last."""
    return {name: _named(name, _last(columns, names) or 0) for name in names}


def newest_label(columns: Collection[str]) -> str:
    """Finds the label that scoring added last; `label` if there is none."""
    return newest_names(columns, [LABEL])[LABEL]


def score_names(label: str, columns: Collection[str]) -> Iterator[str]:
    """Yields the possible names of the probability that belongs to a label, the likeliest first.

    Scoring adds both columns with the same number: if that probability exists, it is the only candidate.
    """
    place = _place(label, (LABEL,))
    if place and (probability := _named(PROBABILITY, place)) in columns:
        yield probability
        return
    yield from dict.fromkeys((newest_names(columns, [PROBABILITY])[PROBABILITY], *USUAL_SCORES))


def _last(columns: Collection[str], names: Collection[str]) -> int | None:
    return max((place for column in columns if (place := _place(column, names)) is not None), default=None)


def _place(column: str, names: Collection[str]) -> int | None:
    """Reads the number of a column: 0 for a plain name, 1 for `faithkit_` without a number; None for other columns."""
    if column in names:
        return 0
    found = _ADDED.fullmatch(column)
    return int(found[2] or 1) if found and found[1] in names else None


def _named(name: str, place: int) -> str:
    return (name, f"faithkit_{name}")[place] if place < 2 else f"faithkit_{name}_{place}"
