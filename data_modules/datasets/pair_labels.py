"""Reads the labels of a table of one's own: words that can mean one thing alone, else what the settings say.

1 and 0 (true and false, yes and no) mean nothing by themselves: in a column `hallucinated` 1 is hallucinated, in a
column `supported` it is faithful, and in a column `label` only its owner knows.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED

HALLUCINATED_WORDS = (
    *("hallucinated", "hallucination", "hallucinating", "unsupported", "not supported", "unfaithful", "not faithful"),
    *("ungrounded", "not grounded", "unattributable", "not attributable", "inconsistent"),
)
FAITHFUL_WORDS = (
    *("faithful", "not hallucinated", "non hallucinated", "no hallucination", "supported", "grounded"),
    *("attributable", "consistent"),
)
WORDS = {**dict.fromkeys(HALLUCINATED_WORDS, HALLUCINATED), **dict.fromkeys(FAITHFUL_WORDS, FAITHFUL)}
TRUE, FALSE = ("1", "1.0", "true", "yes", "t", "y"), ("0", "0.0", "false", "no", "f", "n")
MOST_LABELS = 6  # that an error lists
MOST_COUNTED = 1000  # different values of a column that an error counts
LEFT_OUT = "left_out"
BY_LABEL = {HALLUCINATED: HALLUCINATED, FAITHFUL: FAITHFUL, LEFT_OUT: None}
TYPED_AS_KEY = re.compile(r"(?!null\b)[a-z_][a-z0-9_./%?+-]*( [a-z0-9_./%?+-]+)*|0|-?[1-9]\d{0,8}|\d\.\d")


@dataclass(slots=True)
class LabelReader:
    """Reads the labels of one column.

    Args:
        column: Its name, which may tell what 1 and 0 mean.
        given: What the settings say of each value: hallucinated, faithful, or None to leave it out.
        keys: How the keys of the settings begin that hints name.
    """

    column: str
    given: Mapping[Any, Any] | None = None
    keys: str = "data."
    _known: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.given is not None:
            self._known = meanings(self.given, self.keys)
            return
        self._known = dict(WORDS)
        last = _plain(self.column.rpartition(".")[2]).removeprefix("is ").removeprefix("has ")
        if (truth := WORDS.get(last)) is not None:
            other = FAITHFUL if truth == HALLUCINATED else HALLUCINATED
            self._known |= {**dict.fromkeys(TRUE, truth), **dict.fromkeys(FALSE, other)}

    def knows(self, value: Any) -> bool:
        """Tells whether a value has a meaning."""
        return _plain(value) in self._known

    def read(self, value: Any) -> str | None:
        """The label of a value that is known; None where it is to be left out."""
        return self._known[_plain(value)]

    def refuse(self, values: Iterable[Any], place: str) -> UserError:
        """The error for a column with a value that has no meaning.

        Args:
            values: Of the whole column, to tell how often there is which.
        """
        counts: Counter[str] = Counter()
        for value in values:
            text = _plain(value)
            counts["other" if text not in counts and len(counts) >= MOST_COUNTED else text] += 1
        del counts[""]
        listed = ", ".join(f"{shorten(text)[1:-1]} ({count:,})" for text, count in counts.most_common(MOST_LABELS))
        more = f" and {len(counts) - MOST_LABELS:,} more" if len(counts) > MOST_LABELS else ""
        if len(counts) > 2:
            problem = f"column {self.column!r} holds {len(counts):,} labels, by rows: {listed}{more}"
            then = "; null leaves such rows out"
        else:
            problem = f"column {self.column!r} does not say what its labels mean, by rows: {listed}"
            then = ", or the other way round" if set(counts) <= {*TRUE, *FALSE} else ""
        setting = shlex.quote(f"{self.keys}labels={_typed(self._guessed(counts))}")
        return UserError(problem, place=place, hint=f"{setting}{then}")

    def _guessed(self, counts: Counter[str]) -> list[tuple[str, str | None]]:
        """The meaning of each value as far as it can be guessed: one that is unknown takes a label that is free."""
        guesses = {**dict.fromkeys(TRUE, HALLUCINATED), **dict.fromkeys(FALSE, FAITHFUL), **self._known}
        values = [value for value, _ in counts.most_common(MOST_LABELS)]
        taken = {guesses.get(value) for value in values}
        free = iter([label for label in (HALLUCINATED, FAITHFUL) if label not in taken])
        return [(value, guesses.get(value) or next(free, None)) for value in values]


def meanings(given: Mapping[Any, Any], keys: str) -> dict[str, str | None]:
    """Reads the settings: `{1: hallucinated, 0: faithful, unsure: null}`, or by label `{hallucinated: [1], ...}`.

    Raises:
        UserError: They do not say what hallucinated and what faithful is.
    """
    usual = f"'{keys}labels={{1: hallucinated, 0: faithful}}'; null leaves rows of a label out"
    found: dict[str, str | None] = {}
    if not isinstance(given, Mapping):
        raise UserError(f"{keys}labels is {shorten(given)}", hint=usual)
    for value, label in given.items():
        if isinstance(label, list):
            if value not in BY_LABEL:
                raise UserError(f"{keys}labels: a list for {shorten(value)}", hint=usual)
            found |= {_plain(one): BY_LABEL[value] for one in label}
        elif label in (HALLUCINATED, FAITHFUL, None):
            found[_plain(value)] = label
        else:
            raise UserError(f"{keys}labels: {value} is {shorten(label)}", hint=usual)
    if not any(found.values()):
        raise UserError(f"{keys}labels names neither hallucinated nor faithful", hint=usual)
    return found


def _plain(value: Any) -> str:
    return "" if value is None else " ".join(str(value).replace("_", " ").replace("-", " ").lower().split())


def _typed(pairs: Sequence[tuple[str, str | None]]) -> str:
    """The labels as Hydra reads them: a key cannot be quoted there, so odd ones stand in lists."""
    if all(TYPED_AS_KEY.fullmatch(value) for value, _ in pairs):
        inside = [f"{value}: {label or 'null'}" for value, label in pairs]
        return f"{{{', '.join(inside)}}}"
    by_label: dict[str, list[str]] = {}
    for value, label in pairs:
        quoted = re.sub(r'(\\*)("|$)', r"\1\1\2", value).replace('"', '\\"')  # backslashes count before a quote alone
        by_label.setdefault(label or LEFT_OUT, []).append(f'"{quoted}"')
    inside = [f"{label}: [{', '.join(values)}]" for label, values in by_label.items()]
    return f"{{{', '.join(inside)}}}"
