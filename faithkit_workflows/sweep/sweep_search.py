"""Proposes the jobs of a sweep: a grid of values, or a search by Optuna.

Optuna's study is in memory and is rebuilt from sweep.json and the runs' folders; there is no database.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from faithkit.errors import UserError
from faithkit.runs.sweeps import DONE, SweepJob, SweepRecord
from faithkit_workflows.settings.training import Sweep
from faithkit_workflows.sweep.sweep_plan import Plan, grid, make_job


class Search(Protocol):
    """Proposes jobs one by one; the next one may depend on earlier results."""

    def jobs(self) -> Iterator[SweepJob]:
        """Yields the jobs to train; the next one is requested when a slot is free."""
        ...

    def add_result(self, job: SweepJob, value: float | None) -> None:
        """Records the result of a job that has ended; None if it has none."""
        ...


class GridSearch:
    """Proposes every combination of the values."""

    def __init__(self, plan: Plan, record: SweepRecord):
        known: dict[str, SweepJob] = dict(record.jobs)
        self.all: list[SweepJob] = []
        for settings in grid(plan):
            job = make_job(settings, known)
            known[job.name] = job
            self.all.append(job)

    def jobs(self) -> Iterator[SweepJob]:
        yield from (job for job in self.all if job.ended != DONE)

    def add_result(self, job: SweepJob, value: float | None) -> None:
        pass


class OptunaSearch:
    """Proposes settings until there are `num_trials` results.

    Args:
        results: The value of each finished job, by name.
    """

    def __init__(self, plan: Plan, record: SweepRecord, options: Sweep, *, mode: str, results: Mapping[str, float]):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = {head: distribution_of(head, override) for head, override in plan.varied.items()}
        self.known = dict(record.jobs)
        # A resumed search needs another seed: the same one would draw the first settings again.
        seed = (options.seed + len(self.known)) % 2**32
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        directions = optuna.study.StudyDirection
        direction = directions.MINIMIZE if mode == "min" else directions.MAXIMIZE
        self.study = optuna.create_study(sampler=samplers[options.sampler](seed=seed), direction=direction)
        self.trials = dict[str, Any]()
        self.lock = threading.Lock()
        pending = []
        for job in self.known.values():
            params = self._params(job)
            if job.name in results:
                trial = optuna.create_trial(params=params, value=results[job.name], distributions=self.space)
                self.study.add_trial(trial)
            else:
                pending.append(params)
        self.left = max(options.num_trials - len(results), 0)
        for params in pending[: self.left]:
            self.study.enqueue_trial(params)

    def jobs(self) -> Iterator[SweepJob]:
        """Yields interrupted and failed jobs first, then what Optuna proposes."""
        for _ in range(self.left):
            with self.lock:
                trial = self.study.ask(fixed_distributions=self.space)
                drawn = {head: trial.params[head] for head in self.space}
                settings = {head: one if isinstance(one, str) else repr(one) for head, one in drawn.items()}
                job = make_job(settings, self.known, number=len(self.known))
                self.known[job.name] = job
                self.trials[job.name] = trial
            yield job

    def add_result(self, job: SweepJob, value: float | None) -> None:
        """Records a result; a job without one has failed."""
        from optuna.trial import TrialState

        is_done = job.ended == DONE
        state = TrialState.COMPLETE if is_done else TrialState.FAIL
        with self.lock:
            self.study.tell(self.trials[job.name], value if is_done else None, state=state)

    def _params(self, job: SweepJob) -> dict[str, Any]:
        """Converts the settings of a job to Optuna's parameters.

        Raises:
            UserError: They are not in the search space of this sweep.
        """
        try:
            return {head: _read(job.settings[head], distribution) for head, distribution in self.space.items()}
        except (KeyError, ValueError) as error:
            hint = "its values must be among those of the command; choose another run_dir"
            raise UserError(f"the job {job.name} has other settings than this sweep: {error}", hint=hint) from error


def distribution_of(head: str, override: Any) -> Any:
    """Converts a Hydra sweep to a distribution: interval(a,b), also tagged log or int, range(...), or single values.

    Raises:
        UserError: The range is empty.
    """
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    is_log = "log" in getattr(value, "tags", ())
    try:
        if isinstance(value, IntervalSweep):
            kind: Any = IntDistribution if isinstance(value.start, int) else FloatDistribution
            return kind(value.start, value.end, log=is_log)
        if isinstance(value, RangeSweep):
            steps = list(override.sweep_string_iterator())
            if all(isinstance(one, int) for one in (value.start, value.stop, value.step)) and steps and value.step > 0:
                return IntDistribution(int(steps[0]), int(steps[-1]), step=int(value.step))
            return CategoricalDistribution(steps)
        return CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise UserError(f"{override.input_line}: {error}", hint=f"write '{head}=interval(LOW,HIGH)'") from error


def _read(text: str, distribution: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        value: Any = text
        inside = text in distribution.choices
    else:
        value = int(text) if isinstance(distribution, IntDistribution) else float(text)
        inside = distribution.low <= value <= distribution.high
    if not inside:
        raise ValueError(f"{text} is not in {distribution}")
    return value
