"""Where the jobs of a sweep come from: a grid, or Optuna."""

from collections.abc import Iterator
from typing import Protocol

from faithkit.runs.run import Curve
from faithkit.runs.sweeps import DONE, SweepJob, SweepRecord
from faithkit_workflows.sweep.plan import Plan, grid, job_of


class Search(Protocol):
    """Gives jobs one by one; it may wait with the next one until earlier ones have been told."""

    def jobs(self) -> Iterator[SweepJob]:
        """Yields what is to be trained; the next job is asked for when there is room for it."""
        ...

    def tell(self, job: SweepJob, value: float | None) -> None:
        """Takes the result of a job that has ended; None where it has none."""
        ...

    def is_hopeless(self, job: SweepJob, curve: Curve) -> bool:
        """Tells whether a job may end before its time, by its validations so far."""
        ...


class GridSearch:
    """Every combination of the values."""

    def __init__(self, plan: Plan, record: SweepRecord):
        known: dict[str, SweepJob] = dict(record.jobs)
        self.all: list[SweepJob] = []
        for settings in grid(plan):
            job = job_of(settings, known)
            known[job.name] = job
            self.all.append(job)

    def jobs(self) -> Iterator[SweepJob]:
        yield from (job for job in self.all if job.ended != DONE)

    def tell(self, job: SweepJob, value: float | None) -> None:
        pass

    def is_hopeless(self, job: SweepJob, curve: Curve) -> bool:
        return False
