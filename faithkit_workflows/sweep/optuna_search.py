"""Optuna as the source of jobs: it is told each result, and proposes the next settings.

The study lives in memory. What it knows is rebuilt from sweep.json and the runs' folders: there is no data base that
could tell something else than they do.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from faithkit.errors import UserError
from faithkit.runs.run import Curve
from faithkit.runs.sweeps import DONE, PRUNED, SweepJob, SweepRecord
from faithkit_workflows.settings.training import Sweep
from faithkit_workflows.sweep.plan import Plan, job_of


class OptunaSearch:
    """Proposes settings until there are `num_trials` results.

    Args:
        results: Of the jobs that are done, by name, the value and the validations before it.
    """

    def __init__(
        self, plan: Plan, record: SweepRecord, options: Sweep, *, mode: str, results: Mapping[str, tuple[float, Curve]]
    ):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = {head: distribution_of(head, override) for head, override in plan.varied.items()}
        self.known = dict(record.jobs)
        # Another seed than that of the command before: the same one would draw its first settings again.
        seed = (options.seed + len(self.known)) % 2**32
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruner = optuna.pruners.MedianPruner() if options.prune else optuna.pruners.NopPruner()
        directions = optuna.study.StudyDirection
        direction = directions.MINIMIZE if mode == "min" else directions.MAXIMIZE
        self.study = optuna.create_study(
            sampler=samplers[options.sampler](seed=seed), pruner=pruner, direction=direction
        )
        self.options, self.trials = options, dict[str, Any]()
        self.lock = threading.Lock()
        pending = []
        for job in self.known.values():
            params = self._params(job)
            if job.name in results:
                value, curve = results[job.name]
                known: dict[str, Any] = {"distributions": self.space, "intermediate_values": dict(curve)}
                self.study.add_trial(optuna.create_trial(params=params, value=value, **known))
            elif job.ended != PRUNED:
                pending.append(params)
        ended = len(results) + sum(job.ended == PRUNED for job in self.known.values())
        self.left = max(options.num_trials - ended, 0)
        for params in pending[: self.left]:
            self.study.enqueue_trial(params)

    def jobs(self) -> Iterator[SweepJob]:
        """Yields jobs: those that were cut off or failed first, then what Optuna proposes."""
        for _ in range(self.left):
            with self.lock:
                trial = self.study.ask(fixed_distributions=self.space)
                settings = {head: _written(trial.params[head]) for head in self.space}
                job = job_of(settings, self.known, number=len(self.known))
                self.known[job.name] = job
                self.trials[job.name] = trial
            yield job

    def tell(self, job: SweepJob, value: float | None) -> None:
        """Takes a result; a job without one has failed, or was pruned."""
        import optuna

        trial = self.trials[job.name]
        states = {DONE: optuna.trial.TrialState.COMPLETE, PRUNED: optuna.trial.TrialState.PRUNED}
        state = states.get(job.ended or "", optuna.trial.TrialState.FAIL)
        with self.lock:
            self.study.tell(trial, value if job.ended == DONE else None, state=state)

    def is_hopeless(self, job: SweepJob, curve: Curve) -> bool:
        """Asks the pruner, which compares validations at the same step."""
        if not self.options.prune:
            return False
        with self.lock:
            trial = self.trials[job.name]
            known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
            for step, value in curve:
                if step not in known:
                    trial.report(value, step)
            return bool(trial.should_prune())

    def _params(self, job: SweepJob) -> dict[str, Any]:
        """Reads the settings of a job as Optuna has them.

        Raises:
            UserError: They are none of this sweep's.
        """
        try:
            return {head: _read(job.settings[head], distribution) for head, distribution in self.space.items()}
        except (KeyError, ValueError) as error:
            hint = "its values must be among those of the command; choose another run_dir"
            raise UserError(f"the job {job.name} has other settings than this sweep: {error}", hint=hint) from error


def distribution_of(head: str, override: Any) -> Any:
    """Translates what Hydra sweeps over: interval(a,b), also tagged log or int, range(...), and single values.

    Raises:
        UserError: There is nothing between its ends.
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


def _written(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


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
