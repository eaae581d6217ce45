"""Takes one recipe through all that a user does with it: train, be killed, resume, export, evaluate."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.paper_smoke.commands import commands_of, typed
from tests.paper_smoke.forks import Fork
from tests.paper_smoke.memory import aside
from tests.paper_smoke.processes import Watched, watch
from tests.paper_smoke.recipes import Recipe
from tests.paper_smoke.workshop import Workshop
from tests.running import ROOT

LIMIT = 1200.0  # seconds of one command


@dataclass(slots=True)
class Result:
    """The outcome of a recipe.

    Args:
        commands: What was run, as one would type it; a recipe of other commands is run again.
        parameters: Of the weights that it began with.
        seconds: Of each command by its name.
        memory: The peak of each command's processes in GiB, the largest first.
        error: Of the command that failed, its last line.
    """

    name: str
    commands: dict[str, str]
    processes: int = 1
    parameters: int = 0
    step_seconds: float | None = None
    resumed_at: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, list[float]] = field(default_factory=dict)
    error: str | None = None

    @property
    def passed(self) -> bool:
        return self.error is None

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))


def stored_result(recipe: Recipe, shop: Workshop) -> Result | None:
    """Reads what became of a recipe before; None where it was not run, or its commands were others."""
    path = shop.results / f"{recipe.name}.json"
    result = Result(**json.loads(path.read_text())) if path.exists() else None
    return result if result is not None and result.commands == typed(commands_of(recipe, shop)) else None


def is_done(recipe: Recipe, shop: Workshop) -> bool:
    """Tells whether a recipe has passed as it is now."""
    result = stored_result(recipe, shop)
    return result is not None and result.passed


def run_recipe(recipe: Recipe, shop: Workshop) -> Result:
    """Runs all commands of a recipe until one fails; its runs are deleted behind it."""
    commands, folder = commands_of(recipe, shop), shop.run_folder(recipe)
    shutil.rmtree(folder, ignore_errors=True)
    result = Result(recipe.name, typed(commands), recipe.processes)
    result.parameters = aside(shop.prepare, recipe)
    for name, command in commands.items():
        run = folder / "run"
        log = shop.root / "logs" / f"{recipe.name}-{name.replace(' ', '-')}.log"
        kill = (lambda run=run: any(run.glob("**/checkpoints/last.ckpt"))) if name == "train" else None
        forked = recipe.processes == 1 or name not in ("train", "resume")
        ended = run_command(command, log, forked=forked, run=run, kill_when=kill)
        result.seconds[name], result.memory[name] = ended.seconds, ended.memory
        if name in ("train", "resume") and ended.step_seconds:
            result.step_seconds = ended.step_seconds[-1]
        if problem := problem_of(name, ended, run):
            result.error = f"{name}: {problem}"
            break
        if name == "resume":
            result.resumed_at = resumed_at(ended.output)
    if result.passed:
        shutil.rmtree(folder)  # gigabytes; of a failure all stays to be looked at
    result.save(shop.results)
    return result


def problem_of(name: str, ended: Watched, run: Path) -> str | None:
    """Tells what went wrong with a command, if anything did."""
    if name == "train":
        if ended.code == -9 and any(run.glob("**/checkpoints/last.ckpt")):
            return None
        return "it ended before it could be killed" if ended.code == 0 else end_of(ended)
    if ended.code:
        return end_of(ended)
    if name == "resume" and resumed_at(ended.output) is None:
        return "it did not go on from a checkpoint"
    return None


def end_of(ended: Watched) -> str:
    """Tells what a command that failed said last, or that it was killed."""
    if ended.code < 0:
        return f"killed by signal {-ended.code}: too little memory, or longer than {LIMIT:.0f} s"
    return ended.last_line


def resumed_at(output: str) -> int | None:
    """The step at which a training says that it goes on."""
    words = [line.rpartition("going on at step ")[2] for line in output.splitlines() if "going on at step " in line]
    return int(words[0]) if words else None


def run_command(arguments: Sequence[str], log: Path, *, forked: bool, **options: Any) -> Watched:
    """Runs one of the scripts as a process of its own, without any hub.

    Args:
        forked: From a process that has imported already; DDP, which starts the command once more, needs a plain one.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if forked:
        return watch(Fork(arguments, log), log=log, limit=LIMIT, **options)
    command = [sys.executable, "-W", "ignore", str(ROOT / arguments[0]), *arguments[1:]]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    with log.open("w") as output:
        streams: Any = {"stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        return watch(process, log=log, limit=LIMIT, **options)
