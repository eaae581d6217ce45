"""Runs the steps of tables one after the other, each once; what a kill left is gone on with."""

import logging
import resource
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit import signals
from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json
from faithkit_workflows.reproduction.steps import Place, Step, blocked, command
from faithkit_workflows.sweep.launching import quote_override, run_script_apart

GO_ON = "the same command goes on"
DONE, BEGUN, NEW = "done", "begun", "to do"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Describes a step that was begun; kept beside its run's folder.

    Args:
        command: Its arguments.
        seconds: Of the clock, and of the processor, of the process that ended it; None before.
    """

    command: tuple[str, ...]
    seconds: float | None = None
    cpu_seconds: float | None = None
    ended: str | None = None


def read_record(step: Step, place: Place) -> Record | None:
    """Reads what is known of a step; None where it was not begun."""
    path = _record(step, place)
    if not path.exists():
        return None
    hint = f"delete it and {place.folder(step.name)} to begin the step again"
    values: dict[str, Any] = read_strict_json(path, hint=hint)
    return Record(**{**values, "command": tuple(values["command"])})


def state(step: Step, place: Place) -> str:
    """Tells whether a step is done.

    Raises:
        UserError: It was begun with other settings.
    """
    record = read_record(step, place)
    if record is None:
        return NEW
    if record.command != tuple(command(step, place)):
        hint = f"choose another out=, or begin it again: rm -r {place.folder(step.name)} {_record(step, place)}"
        raise UserError(f"step {step.name} was run with other settings", place=str(place.out), hint=hint)
    return DONE if record.ended else BEGUN


def run_steps(steps: Sequence[Step], place: Place) -> dict[str, str]:
    """Runs what is not done; gives the steps that there are no results of, with the reason.

    A step that fails stops those alone that need it.
    """
    without = dict(blocked(steps, place))
    states = {step.name: state(step, place) for step in steps if step.name not in without}
    for number, step in enumerate(steps, start=1):
        if needed := next((name for name in step.steps.values() if name in without), None):
            without.setdefault(step.name, without[needed])
        if step.name in without or states[step.name] == DONE:
            continue
        log.info("step %d of %d, %s: %s", number, len(steps), step.name, shown(step, place))
        if code := _run(step, place):
            without[step.name] = f"step {step.name} failed with exit code {code}: {_log(step, place)} says why"
            log.warning("%s", without[step.name])
    return without


def shown(step: Step, place: Place) -> str:
    """Writes a step as one would type it in a shell."""
    return shlex.join(["faithkit", step.script, *command(step, place)])


def _run(step: Step, place: Place) -> int:
    folder, arguments = place.folder(step.name), command(step, place)
    folder.parent.mkdir(parents=True, exist_ok=True)
    began, cpu = time.monotonic(), _cpu_seconds()
    if (folder / "config.yaml").exists():
        typed = [f"resume={quote_override(str(folder))}"]
    else:
        typed = arguments
        write_json(_record(step, place), {"command": arguments})
    with _log(step, place).open("a", encoding="utf-8") as output:
        try:
            code = run_script_apart(step.script, typed, output)
        except signals.Interrupted as error:
            raise signals.Interrupted(GO_ON) from error
    if code == signals.EXIT_CODE:
        raise signals.Interrupted(GO_ON)
    if code == 0:
        spent = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(_cpu_seconds() - cpu, 1)}
        ended = time.strftime("%Y-%m-%d %H:%M")
        write_json(_record(step, place), {"command": arguments, **spent, "ended": ended})
    return code


def costs(steps: Sequence[Step], place: Place) -> Mapping[str, Record]:
    """Gives the records of the steps that are done, by name."""
    found = {step.name: read_record(step, place) for step in steps}
    return {name: record for name, record in found.items() if record and record.ended}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _record(step: Step, place: Place) -> Path:
    return place.folder(step.name).with_name(f"{step.name}.json")


def _log(step: Step, place: Place) -> Path:
    return place.folder(step.name).with_name(f"{step.name}.log")
