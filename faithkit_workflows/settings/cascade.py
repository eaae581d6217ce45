"""The block `cascade`: when the dear detector is asked, and what the table of costs compares."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.check import check_fields
from faithkit.settings.types import Hint, PositiveShare, Share

WAYS = ("budget", "precision", "band")
Scores = Annotated[
    Annotated[list[Share], Field(min_length=2, max_length=2)], Hint("use two scores from 0 to 1: [0.2,0.8]")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeOptions:
    """The block `cascade` of evaluate.py; none of its ways given is no cascade.

    Args:
        budget: The share of rows that the dear detector is asked about.
        precision: The cheap one decides alone where it is right so often.
        band: The scores of the cheap one, lowest and highest, at which the dear one is asked.
        max_budget: The table compares budgets up to this share, and asks as many rows; None takes `budget`.
    """

    budget: PositiveShare | None = None
    precision: PositiveShare | None = None
    band: Scores | None = None
    max_budget: PositiveShare | None = None

    def __post_init__(self) -> None:
        check_fields(self, "cascade")
        given = [f"cascade.{name}" for name in WAYS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} are given: one of them chooses", hint=f"leave out {given[-1]}")
        if self.band is not None and self.band[0] > self.band[1]:
            raise UserError(f"cascade.band is {self.band}", hint=f"the lower score first: {self.band[::-1]}")
        if self.max_budget is not None and not given:
            raise UserError("cascade.max_budget without a cascade", hint="set cascade.budget=0.2 too")

    @property
    def is_on(self) -> bool:
        """Tells whether there is a cascade."""
        return any(getattr(self, name) is not None for name in WAYS)
