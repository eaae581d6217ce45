"""A campaign damages one kind of input many times; each try must end well: used, or refused with an explanation."""

import importlib
import random
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faithkit.errors import UserError


class Wrong(AssertionError):
    """A damaged input was used as if it were whole, or was refused without a place or a hint."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """One kind of damage.

    Args:
        name: The row of the table: what is damaged, and who reads it.
        attempt: Damages a fresh copy of the input in an empty folder and uses it. It returns where the damage may
            pass or does no harm, and raises `UserError` where it is refused; anything else that it raises is a failure.
        share: Its tries, of those of all campaigns, are in proportion to it: less for what takes long.
    """

    name: str
    attempt: Callable[[random.Random, Path], None]
    share: float = 1.0


@dataclass(slots=True)
class Outcome:
    """Counts what became of a campaign's tries."""

    used: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


def campaigns() -> Iterator[Campaign]:
    """All campaigns: the list CAMPAIGNS of each file `fuzz_*.py` of this folder."""
    for path in sorted(Path(__file__).parent.glob("fuzz_*.py")):
        yield from importlib.import_module(f"tests.faults.{path.stem}").CAMPAIGNS


def run_campaign(campaign: Campaign, folder: Path, *, seed: int, numbers: Iterable[int]) -> Outcome:
    """Makes the tries of these numbers. A try depends on its number and the seed alone, so that one can be repeated."""
    outcome = Outcome()
    for number in numbers:
        place = folder / f"{number}"
        place.mkdir(parents=True)
        rng = random.Random(f"{campaign.name} {seed} {number}")
        try:
            campaign.attempt(rng, place)
            outcome.used += 1
        except UserError as error:
            outcome.refused += 1
            if len(str(error).splitlines()) > 5:
                outcome.failures.append(f"{campaign.name}, seed {seed}, try {number}: more than five lines")
        except Exception:
            last = traceback.format_exc(limit=-3)
            outcome.failures.append(f"{campaign.name}, seed {seed}, try {number}:\n{last}")
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return outcome
