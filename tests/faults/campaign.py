"""A campaign damages one kind of input many times; each try must end well: used, or refused with an explanation."""

import importlib
import random
import shutil
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from faithkit.errors import UserError

CPU_SECONDS, WALL_SECONDS = 5.0, 60.0  # of a try; the second one for what waits, since the machine may be busy
FIRST_SECONDS = 60.0  # of the first try, which imports and makes what all need


class TooLong(BaseException):
    """A try that does not end. No Exception, so that nothing on the way handles it."""


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
    for position, number in enumerate(numbers):
        place = folder / f"{number}"
        place.mkdir(parents=True)
        rng = random.Random(f"{campaign.name} {seed} {number}")
        try:
            with _limited(CPU_SECONDS if position else FIRST_SECONDS):
                campaign.attempt(rng, place)
            outcome.used += 1
        except UserError as error:
            outcome.refused += 1
            if len(str(error).splitlines()) > 5:
                outcome.failures.append(f"{campaign.name}, seed {seed}, try {number}: more than five lines")
        except (Exception, TooLong):
            last = traceback.format_exc(limit=-3)
            outcome.failures.append(f"{campaign.name}, seed {seed}, try {number}:\n{last}")
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return outcome


@contextmanager
def _limited(cpu_seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong(f"more than {cpu_seconds:.0f} CPU-seconds, or {WALL_SECONDS:.0f} seconds")

    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
