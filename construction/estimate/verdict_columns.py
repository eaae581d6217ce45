"""Names the columns that hold verdicts in a table: those that scoring adds to it, and those that are read of it later.

Scoring adds `label`, `probability` and `spans`. Where the table has one of these, all three are called `faithkit_label`
and so on; where it has one of those too, `faithkit_label_2`, then `_3`: the verdicts of several detectors stand side by
side, the newest under the highest number, and all of one detector's under the same.
"""

import re
from collections.abc import Collection, Iterator, Sequence

LABEL, PROBABILITY = "label", "probability"
VERDICT = (LABEL, PROBABILITY, "spans")
OWN_SCORES = (PROBABILITY, "score")  # what a table of someone else's may call it
_ADDED = re.compile(r"faithkit_(.+?)(?:_([2-9]|[1-9]\d+))?")


def added_names(columns: Collection[str], names: Sequence[str]) -> dict[str, str]:
    """Names the columns to add to these: plainly, or with the number behind all that are there."""
    last = _last(columns, names)
    return {name: _named(name, 0 if last is None else last + 1) for name in names}


def newest_names(columns: Collection[str], names: Sequence[str] = VERDICT) -> dict[str, str]:
    """Names the columns that were added last."""
    return {name: _named(name, _last(columns, names) or 0) for name in names}


def newest_label(columns: Collection[str]) -> str:
    """Finds the label that scoring added last; `label` where none is known to be added."""
    return newest_names(columns, [LABEL])[LABEL]


def score_names(label: str, columns: Collection[str]) -> Iterator[str]:
    """Yields the names that the probability behind a label may have, the likeliest first.

    A detector's probability is added beside its label: where it stands there, no other one is meant.
    """
    place = _place(label, (LABEL,))
    if place and (beside := _named(PROBABILITY, place)) in columns:
        yield beside
        return
    yield from dict.fromkeys((newest_names(columns, [PROBABILITY])[PROBABILITY], *OWN_SCORES))


def _last(columns: Collection[str], names: Collection[str]) -> int | None:
    return max((place for column in columns if (place := _place(column, names)) is not None), default=None)


def _place(column: str, names: Collection[str]) -> int | None:
    """Reads the number of a column that may have been added: 0 has none, and 1 stands for `faithkit_` alone."""
    if column in names:
        return 0
    found = _ADDED.fullmatch(column)
    return int(found[2] or 1) if found and found[1] in names else None


def _named(name: str, place: int) -> str:
    return (name, f"faithkit_{name}")[place] if place < 2 else f"faithkit_{name}_{place}"
