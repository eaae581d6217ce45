"""A sweep of train.py: every job is a run in a separate folder, with a table that ranks them.

faithkit train -m optimizer.lr=1e-4,2e-4 seed=1,2
"""

import logging
import os
import shlex
from typing import Any

from faithkit import signals
from faithkit.embedded_name import mark_embedded
from faithkit.errors import UserError, raise_problems
from faithkit.files.run_folder import log_to
from faithkit.files.run_lock import run_lock
from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import read_run
from faithkit.runs.run import State
from faithkit.runs.sweeps import DONE, SweepRecord, write_sweep
from faithkit.settings.command_line import CommandLine
from faithkit_workflows.settings.preflight import check_package
from faithkit_workflows.settings.training import JOBLIB, OPTUNA, Sweep
from faithkit_workflows.sweep.launching import Launcher, build_launcher
from faithkit_workflows.sweep.sweep_jobs import Jobs, describe_failures
from faithkit_workflows.sweep.sweep_plan import Plan, open_record, read_plan, stored_command
from faithkit_workflows.sweep.sweep_search import GridSearch, Search

SUBMITIT_FOLDER = "submitit"  # within the sweep's folder, for submitit's files
log = logging.getLogger("faithkit")


def sweep(line: CommandLine, launcher: Launcher | None = None) -> None:
    """Runs the sweep of a command line.

    Args:
        launcher: Replaces the launcher that `sweep.launcher` names.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:  # each of its processes would start the same sweep
        why = "torchrun starts one training, and a sweep starts its trainings itself"
        raise UserError(why, hint="faithkit train -m ... trainer=ddp without torchrun")
    line = stored_command(line)
    tried: list[Any] = []
    line.check_sweep(use=tried.append)
    plan = read_plan(line)
    options = Sweep.model_validate(plain_block(tried[0].sweep))
    raise_problems(_missing_packages(options))
    for cfg in tried:
        mark_embedded(cfg)
    monitors = list(dict.fromkeys((str(cfg.callbacks.monitor), str(cfg.callbacks.mode)) for cfg in tried))
    if options.search == OPTUNA:
        _check_search(plan, monitors)
    elif intervals := [head for head, override in plan.varied.items() if is_interval(override)]:
        raise UserError(f"a grid has no interval: {intervals[0]}", hint="add sweep=optuna, or list the values: a,b,c")
    plan.folder.mkdir(parents=True, exist_ok=True)
    with run_lock(plan.folder):
        record = open_record(plan)
        search, total = _search(plan, record, options, monitors)
        write_sweep(record)
        log_to(plan.folder / "sweep.log")
        log.info("%d jobs in %s", total, plan.folder)
        launcher = launcher or build_launcher(options, plan.folder / SUBMITIT_FOLDER)
        only = monitors[0][0] if len(monitors) == 1 else None
        jobs = Jobs(record, search, launcher, monitor=only, total=total)
        try:
            jobs.run(options.num_parallel)
        except signals.Interrupted as error:
            raise signals.Interrupted(f"resume with: faithkit train -m resume={plan.folder}") from error
    show_result(jobs.record)
    if problem := describe_failures(jobs.record):
        raise problem


def plain_block(block: Any) -> dict[str, Any]:
    """Converts a block of the configuration to plain containers."""
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(block, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def is_interval(override: Any) -> bool:
    """Reports whether an override gives an interval, not values."""
    from hydra.core.override_parser.types import IntervalSweep

    return isinstance(override.value(), IntervalSweep)


def _missing_packages(options: Sweep) -> list[UserError]:
    found = [] if options.search != OPTUNA else list(check_package("sweep=optuna", "optuna", "sweep"))
    if options.launcher != JOBLIB:
        found += check_package(f"sweep.launcher={options.launcher}", "submitit", "sweep")
    return found


def _check_search(plan: Plan, monitors: list[tuple[str, str]]) -> None:
    if not plan.varied:
        hint = "add what may vary: 'optimizer.lr=tag(log,interval(1e-5,1e-3))' or model.dropout=0,0.1"
        raise UserError("sweep=optuna has nothing to choose", hint=hint)
    if len(monitors) > 1:
        names = " and ".join(monitor for monitor, _ in monitors[:2])
        hint = "let it choose within one model and dataset; a grid compares several"
        raise UserError(f"sweep=optuna needs one metric, and these jobs are chosen by {names}", hint=hint)


def _search(plan: Plan, record: SweepRecord, options: Sweep, monitors: list[tuple[str, str]]) -> tuple[Search, int]:
    if options.search != OPTUNA:
        found = GridSearch(plan, record)
        return found, len(found.all)
    from faithkit_workflows.sweep.sweep_search import OptunaSearch

    results: dict[str, float] = {}
    for job in record.jobs.values():
        run = read_run(plan.folder / job.name)
        if run.state == State.FINISHED and job.ended == DONE and (chosen := chosen_of(run)) is not None:
            results[job.name] = chosen.metric.value
    return OptunaSearch(plan, record, options, mode=monitors[0][1], results=results), options.num_trials


def show_result(record: SweepRecord) -> None:
    """Prints the ranked runs and the next commands."""
    from faithkit.pages.page_tables import print_tables
    from faithkit.runs.reading import is_run
    from faithkit_workflows.compare.comparison_tables import ranking_tables, sweep_lines
    from faithkit_workflows.compare.sweep_ranking import rank_sweep

    runs = [read_run(folder) for name in record.jobs if is_run(folder := record.folder / name)]
    ranked = rank_sweep(record, runs)
    print_tables(*ranking_tables(ranked))
    print(*sweep_lines(ranked), sep="\n")
    print(f"compare: faithkit report {shlex.quote(f'runs={record.folder}/*')}")
    print(record.folder)
