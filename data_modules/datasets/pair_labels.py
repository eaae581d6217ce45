"""Reads the labels of a user's table: words with one possible meaning, or what the settings say.

1 and 0 (true and false, yes and no) have no meaning by themselves: in a column `hallucinated` 1 is hallucinated, in a
column `supported` it is faithful, and in a column `label` it could be either.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_modules.datasets.pair_columns import normalise
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
MAX_LISTED = 6  # labels in an error
LEFT_OUT = "left_out"
BY_LABEL = {HALLUCINATED: HALLUCINATED, FAITHFUL: FAITHFUL, LEFT_OUT: None}
PLAIN_KEY = re.compile(r"(?!null\b)[a-z_][a-z0-9_./%?+-]*( [a-z0-9_./%?+-]+)*|0|-?[1-9]\d{0,8}|\d\.\d")


@dataclass(slots=True)
class LabelReader:
    """Reads the labels of one column.

    Args:
        column: Its name, which may show what 1 and 0 mean.
        given: The settings: for each value hallucinated, faithful, or None to leave it out.
        keys: The prefix of the settings' keys in hints.
    """

    column: str
    given: Mapping[Any, Any] | None = None
    keys: str = "data."
    _meanings: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.given is not None:
            self._meanings = read_meanings(self.given, self.keys)
            return
        self._meanings = dict(WORDS)
        last = normalise(self.column.rpartition(".")[2]).removeprefix("is ").removeprefix("has ")
        if (truth := WORDS.get(last)) is not None:
            other = FAITHFUL if truth == HALLUCINATED else HALLUCINATED
            self._meanings |= {**dict.fromkeys(TRUE, truth), **dict.fromkeys(FALSE, other)}

    def knows(self, value: Any) -> bool:
        """Returns whether the value has a meaning."""
        return normalise(value) in self._meanings

    def read(self, value: Any) -> str | None:
        """Returns the label of a value with a meaning; None if its rows are left out."""
        return self._meanings[normalise(value)]

    def refuse(self, values: Iterable[Any], place: str) -> UserError:
        """Makes the error for a value without a meaning; the labels of `values`, the whole column, are counted."""
        counts: Counter[str] = Counter()
        for value in values:
            text = normalise(value)
            counts[text if text in counts or len(counts) < 1000 else "other"] += 1  # so many values are counted
        del counts[""]
        listed = ", ".join(f"{shorten(text)[1:-1]} ({count:,})" for text, count in counts.most_common(MAX_LISTED))
        more = f" and {len(counts) - MAX_LISTED:,} more" if len(counts) > MAX_LISTED else ""
        if len(counts) > 2:
            problem = f"column {self.column!r} holds {len(counts):,} labels, by rows: {listed}{more}"
            then = "; null leaves such rows out"
        else:
            problem = f"column {self.column!r} does not say what its labels mean, by rows: {listed}"
            then = ", or the other way round" if set(counts) <= {*TRUE, *FALSE} else ""
        # The setting is a guess; an unknown value takes a label that no other value has.
        guesses = {**dict.fromkeys(TRUE, HALLUCINATED), **dict.fromkeys(FALSE, FAITHFUL), **self._meanings}
        common = [value for value, _ in counts.most_common(MAX_LISTED)]
        taken = {guesses.get(value) for value in common}
        free = iter([label for label in (HALLUCINATED, FAITHFUL) if label not in taken])
        guessed = [(value, guesses.get(value) or next(free, None)) for value in common]
        setting = shlex.quote(f"{self.keys}labels={_as_setting(guessed)}")
        return UserError(problem, place=place, hint=f"{setting}{then}")


def read_meanings(given: Mapping[Any, Any], keys: str) -> dict[str, str | None]:
    """Reads the settings: `{1: hallucinated, 0: faithful, unsure: null}`, or by label `{hallucinated: [1], ...}`.

    Raises:
        UserError: They define neither hallucinated nor faithful.
    """
    usage = f"'{keys}labels={{1: hallucinated, 0: faithful}}'; null leaves rows of a label out"
    found: dict[str, str | None] = {}
    if not isinstance(given, Mapping):
        raise UserError(f"{keys}labels is {shorten(given)}", hint=usage)
    for value, label in given.items():
        if isinstance(label, list):
            if value not in BY_LABEL:
                raise UserError(f"{keys}labels: a list for {shorten(value)}", hint=usage)
            found |= {normalise(one): BY_LABEL[value] for one in label}
        elif label in (HALLUCINATED, FAITHFUL, None):
            found[normalise(value)] = label
        else:
            raise UserError(f"{keys}labels: {value} is {shorten(label)}", hint=usage)
    if not any(found.values()):
        raise UserError(f"{keys}labels names neither hallucinated nor faithful", hint=usage)
    return found


def _as_setting(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Writes labels as Hydra reads them: a key cannot be quoted there, so unusual ones go into lists."""
    if all(PLAIN_KEY.fullmatch(value) for value, _ in pairs):
        inside = [f"{value}: {label or 'null'}" for value, label in pairs]
        return f"{{{', '.join(inside)}}}"
    by_label: dict[str, list[str]] = {}
    for value, label in pairs:
        quoted = re.sub(r'(\\*)("|$)', r"\1\1\2", value).replace('"', '\\"')  # backslashes count before a quote alone
        by_label.setdefault(label or LEFT_OUT, []).append(f'"{quoted}"')
    inside = [f"{label}: [{', '.join(values)}]" for label, values in by_label.items()]
    return f"{{{', '.join(inside)}}}"
