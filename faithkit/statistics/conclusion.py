"""Concludes from paired differences whether one system is better than another, in words.

The interval decides. One without 0 shows a difference. One that contains 0 shows that two systems are equivalent only
if it lies within the smallest difference of interest, `SMALLEST`; a wider one shows that there are too few rows to
decide. A difference that no group shows may still be that of 3 / groups of all (the rule of three), so that at least
60 groups show equivalence. Fewer than `MIN_ROWS` rows or `MIN_GROUPS` groups decide nothing, whatever the interval is,
since it is rough there.

Schuirmann 1987 (equivalence by two one-sided tests; the 95% interval used here is stricter than their 90%).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from faithkit.statistics.bootstrap import Difference

MIN_ROWS, MIN_GROUPS = 30, 10
SMALLEST = 0.05  # the smallest difference of interest, of metrics from 0 to 1: five points of percent
STRONGEST = "the strongest simple baseline"


class Decision(StrEnum):
    """What a difference shows, the least favourable first."""

    WORSE = "worse than"
    TOO_FEW = "too few rows to decide"
    LEVEL = "equivalent to"
    BETTER = "better than"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A metric of a system minus that of another.

    Args:
        scale: What the difference is multiplied by, 100 for points of percent. Of other metrics, such as perplexity,
            no smallest difference of interest is known, so that they never show that systems are equivalent.
    """

    __test__ = False  # pytest: this is not a test

    metric: str
    other: str
    difference: Difference
    scale: float = 100

    @property
    def verdict(self) -> Decision:
        """Decides by the interval, in the direction of the metric."""
        one = self.difference
        if not has_enough_rows(one):
            return Decision.TOO_FEW
        if one.low <= 0 <= one.high:
            is_small = self.scale == 100 and max(-one.low, one.high, 3 / one.num_groups) <= SMALLEST
            return Decision.LEVEL if is_small else Decision.TOO_FEW
        return Decision.BETTER if (one.value > 0) == (one.higher_is_better is not False) else Decision.WORSE

    @property
    def text(self) -> str:
        """Formats the difference: `macro-F1 +3.1 [1.0, 5.2]`."""
        one = self.difference
        value, low, high = (self.scale * number for number in (one.value, one.low, one.high))
        return f"{self.metric} {value:+.1f} [{low:.1f}, {high:.1f}]"


def has_enough_rows(difference: Difference) -> bool:
    """Reports whether an interval is not too rough to decide anything."""
    return difference.n >= MIN_ROWS and difference.num_groups >= MIN_GROUPS


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict and the sentence that states it with its figures."""

    verdict: Decision
    text: str

    def to_dict(self) -> dict[str, str]:
        """Converts to the form of metrics.json."""
        return {"verdict": self.verdict.name.lower(), "text": self.text}


def conclude(name: str, test: Test, *others: Test, title: str = "") -> Conclusion:
    """Concludes from a test, and from others that may not be less favourable.

    Args:
        name: The system that the others are subtracted from.
        title: What the other system of the first test is, such as the strongest simple baseline.
    """
    verdict = min((one.verdict for one in (test, *others)), key=list(Decision).index)
    rows, groups = test.difference.n, test.difference.num_groups
    size = f"{rows:,} rows{f' in {groups:,} groups' if groups != rows else ''}"
    other = f"{test.other}, {title}" if title else test.other
    figures = "; ".join(
        [test.text, *(one.text + f" against {one.other}" * (one.other != test.other) for one in others)]
    )
    if verdict is Decision.TOO_FEW:
        is_rough = not has_enough_rows(test.difference)
        reason = f"at least {MIN_ROWS} rows in {MIN_GROUPS} groups are needed" if is_rough else figures
        return Conclusion(verdict, f"{verdict} whether {name} is better than {other}: {size}; {reason}")
    within = f" within {100 * SMALLEST:.0f} points" if verdict is Decision.LEVEL else ""
    return Conclusion(verdict, f"{name} is {verdict} {other}{within}, on {size}: {figures}")


def read_conclusions(meta: Mapping[str, Any]) -> dict[str, Conclusion]:
    """Reads the conclusions of a run by test set, as `Conclusion.to_dict` writes them."""
    found, sets = {}, meta.get("test_sets")
    for name, facts in sets.items() if isinstance(sets, Mapping) else ():
        stored = facts.get("conclusion") if isinstance(facts, Mapping) else None
        if isinstance(stored, Mapping) and (verdict := str(stored.get("verdict")).upper()) in Decision.__members__:
            found[name] = Conclusion(Decision[verdict], str(stored.get("text")))
    return found
