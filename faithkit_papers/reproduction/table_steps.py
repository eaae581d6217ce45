"""Runs the steps of a reproduction: commands with separate folders, shared by the tables that need them.

The papers' prompts are not part of the project: a user saves them in a folder, in one folder for each corpus.

    prompts/halludial/verdict.txt    prompts/ragtruth/spans.qa.txt    prompts/diahalu/verdict.examples.jsonl

A step asks with its corpus's files if all that it needs are there, and otherwise with our prompts.
"""

import hashlib
import logging
import resource
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from faithkit import signals
from faithkit.errors import UserError, choice_hint
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.inference.prompts import SHOTS_SUFFIX, SUFFIX, SYSTEM_FILE
from faithkit_workflows.sweep import quote_override, run_script_apart, trainer_overrides
from judge.options import ASKS

LOCAL, PAPER = "local", "paper"
GPU_GIGABYTES = 80
# Corpora that scale=paper reads from the hub, if they are not in data_dir.
ON_HUB = ("faithdial", "mnli")
# The file of the version that a paper is about, where a release has several.
VERSIONS = {"diahalu": "DiaHalu_V1.*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command.

    Args:
        name: The name of its folder; two tables may share a step.
        script: A command of `faithkit`.
        corpora: Keys for corpora, each with the corpus's folder below `data_dir`.
        steps: Keys for runs of other steps, each with the step's name.
        stand_in: The model that replaces the paper's: `minilm in place of RoBERTa-large`.
        server: The paid server that it needs; run only with `hosted=true`.
        answers: The export of people's answers that it needs, below `data_dir`.
        after: Other steps that are run before it; those in `steps` are too.
        num_gpus: The GPUs of 80 GB that it needs at least.
        differs: What it does otherwise than the paper.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    script: Literal["train", "evaluate", "construct"]
    arguments: tuple[str, ...]
    corpora: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    stand_in: str = ""
    server: str = ""
    answers: str = ""
    after: tuple[str, ...] = ()
    num_gpus: int = 0
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders and options of a reproduction.

    Args:
        out: The folder of its steps and tables.
        data_dir: The folder of the corpora in their official layouts, if there is one.
        hosted: Uses models of paid servers too.
        prompts: The folder of the papers' prompts, if there is one.
        trainer: The hardware of every training; None leaves it to the steps.
        engine: The options of models that judge on this machine.
    """

    scale: str
    out: Path
    data_dir: Path | None = None
    prompts: Path | None = None
    hosted: bool = False
    seed: int = 0
    trainer: Mapping[str, Any] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    def folder(self, step: str) -> Path:
        """Returns the run's folder of a step."""
        return self.out / "steps" / step

    def corpus(self, name: str) -> Path | None:
        """Finds a corpus below data_dir, of several versions the paper's; a folder without a file is none."""
        path = self.data_dir / name if self.data_dir else None
        if path is None or not (path.is_file() or any(one.is_file() for one in path.rglob("*"))):
            return None
        return next(iter(sorted(path.glob(VERSIONS[name]))), path) if name in VERSIONS else path

    def given(self, step: Step) -> list[str]:
        """Lists the corpora of a step that are read from data_dir or the hub."""
        on_hub = ON_HUB if self.scale == PAPER else ()
        return [name for name in dict.fromkeys(step.corpora.values()) if self.corpus(name) or name in on_hub]

    def embedded(self, step: Step) -> list[str]:
        """Lists the corpora of a step that the embedded corpus replaces."""
        given = self.given(step)
        return [name for name in dict.fromkeys(step.corpora.values()) if name not in given]


def step_arguments(step: Step, place: Place) -> list[str]:
    """Returns the arguments of a step's script."""
    arguments = list(step.arguments)
    if files := find_prompts(step.arguments, place.prompts):
        has_examples = any(file.name.endswith(SHOTS_SUFFIX) for file in files)
        key = "benchmark.prompts" if f"benchmark={RATES}" in arguments else "judge.prompts"
        # Without a file of examples the prompt has its examples in its text, and no number of them.
        replaced = (f"{key}=",) if has_examples else (f"{key}=", NUMBER)
        arguments = [one for one in arguments if not one.startswith(replaced)]
        arguments.append(f"{key}={quote_override(str(files[0].parent))}")
    arguments.append(f"scale={place.scale}")
    for key, name in step.corpora.items():
        if path := place.corpus(name):
            arguments.append(f"{key}={quote_override(str(path))}")
    arguments += [f"{key}={quote_override(str(place.folder(name)))}" for key, name in step.steps.items()]
    if step.answers and (export := place.corpus(step.answers)):
        arguments.append(f"pipeline.export={quote_override(str(export))}")
    return [*arguments, f"seed={place.seed}", f"run_dir={quote_override(str(place.folder(step.name)))}"]


def hardware_arguments(step: Step, place: Place) -> list[str]:
    """Returns the arguments about hardware, which a finished or resumed step need not have been started with."""
    if step.script == "train":
        return trainer_overrides(place.trainer)
    if "benchmark=transfer" in step.arguments and place.trainer:
        return ["trainer=auto", *trainer_overrides(place.trainer)]
    if "engine=auto" not in step.arguments:  # no language model judges on this machine
        return []
    shared = {"num_gpus": step.num_gpus} if step.num_gpus > 1 else {}
    return [f"engine.{key}={value}" for key, value in {**shared, **place.engine}.items()]


def describe_gpus(step: Step, place: Place) -> str:
    """Describes the GPUs that a step lacks; empty if it has all."""
    import torch

    here, given = torch.cuda.device_count(), 1
    if step.script == "train":
        trainer = place.trainer or {"devices": "auto" if "trainer=fsdp" in step.arguments else 1, "num_nodes": 1}
        devices = trainer["devices"]
        given = len(devices) if isinstance(devices, list) else here if devices in ("auto", -1, "-1") else int(devices)
        given = min(given, here) * trainer["num_nodes"]
        hint = f"trainer=fsdp trainer.devices={step.num_gpus}"
    else:
        given = min(place.engine.get("num_gpus", step.num_gpus), here)
        hint = f"engine.num_gpus={step.num_gpus}"
    if given >= step.num_gpus:
        return ""
    return f"needs {step.num_gpus} GPUs of {GPU_GIGABYTES} GB and gets {given} ({here} here): {hint}"


def sort_steps(wanted: Iterable[str], steps: Mapping[str, Step]) -> list[Step]:
    """Sorts steps after those that they need; each occurs once."""
    found: dict[str, Step] = {}

    def add(names: Iterable[str]) -> None:
        for name in names:
            if name not in found:
                add((*steps[name].steps.values(), *steps[name].after))
                found[name] = steps[name]

    add(wanted)
    return list(found.values())


def find_blocked_steps(steps: Iterable[Step], place: Place) -> dict[str, str]:
    """Finds the steps that cannot be run, with the reason, and those that need one of them."""
    reasons: dict[str, str] = {}
    for step in steps:
        missing = place.embedded(step) if place.scale == PAPER else []
        if step.server and not place.hosted:
            reasons[step.name] = f"a model of {step.server}: hosted=true uses it"
        elif step.answers and not place.corpus(step.answers):
            project = place.folder(step.after[0]) / "project"
            how = f"annotate {project}, and save the export in data_dir as {step.answers}"
            reasons[step.name] = f"judged by people: {how}"
        elif missing:
            are = "is" if len(missing) == 1 else "are"
            reasons[step.name] = f"{' and '.join(missing)} {are} missing below data_dir"
        elif needed := next((reasons[name] for name in step.steps.values() if name in reasons), ""):
            reasons[step.name] = needed
    return reasons


RESUME_HINT = "the same command resumes"
DONE, BEGUN, NEW = "done", "begun", "to do"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of a started step, in a file next to its run's folder.

    Args:
        command: Its arguments.
        prompts: The prompts that it asked with, with their fingerprints.
        seconds: The time of the process that finished it, and its processor time; None before.
    """

    command: tuple[str, ...]
    prompts: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    ended: str | None = None


def read_record(step: Step, place: Place) -> Record | None:
    """Reads the record of a step; None if it was not started."""
    path = _record(step, place)
    if not path.exists():
        return None
    hint = f"delete it and {place.folder(step.name)} to begin the step again"
    values: dict[str, Any] = read_strict_json(path, hint=hint)
    return Record(**{**values, "command": tuple(values["command"])})


def step_state(step: Step, place: Place) -> str:
    """Returns the state of a step.

    Raises:
        UserError: It was started with other settings.
    """
    record = read_record(step, place)
    if record is None:
        return NEW
    prompts = describe_prompts(step.arguments, place.prompts)
    if record.command != tuple(step_arguments(step, place)) or record.prompts not in ("", prompts):
        hint = f"choose another out=, or start it again: rm -r {place.folder(step.name)} {_record(step, place)}"
        raise UserError(f"step {step.name} was run with other settings", place=str(place.out), hint=hint)
    return DONE if record.ended else BEGUN


def run_steps(steps: Sequence[Step], place: Place) -> dict[str, str]:
    """Runs the unfinished steps; returns those without results, with the reason.

    A failed step stops only the steps that need it.
    """
    without = find_blocked_steps(steps, place)
    states = {step.name: step_state(step, place) for step in steps if step.name not in without}
    for number, step in enumerate(steps, start=1):
        if needed := next((name for name in step.steps.values() if name in without), None):
            without.setdefault(step.name, without[needed])
        if step.name in without or states[step.name] == DONE:
            continue
        log.info("step %d of %d, %s: %s", number, len(steps), step.name, shell_command(step, place))
        if code := _run(step, place):
            without[step.name] = f"step {step.name} failed with exit code {code}: see {_log(step, place)}"
            log.warning("%s", without[step.name])
    return without


def shell_command(step: Step, place: Place) -> str:
    """Formats a step as a shell command."""
    return shlex.join(["faithkit", step.script, *step_arguments(step, place), *hardware_arguments(step, place)])


def _run(step: Step, place: Place) -> int:
    folder, arguments = place.folder(step.name), step_arguments(step, place)
    folder.parent.mkdir(parents=True, exist_ok=True)
    begun = {"command": arguments, "prompts": describe_prompts(step.arguments, place.prompts)}
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if (folder / "config.yaml").exists():
        typed = [f"resume={quote_override(str(folder))}", *hardware_arguments(step, place)]
    else:
        typed = [*arguments, *hardware_arguments(step, place)]
        write_json(_record(step, place), begun)
    with _log(step, place).open("a", encoding="utf-8") as output:
        try:
            code = run_script_apart(step.script, typed, output)
        except signals.Interrupted as error:
            raise signals.Interrupted(RESUME_HINT) from error
    if code == signals.EXIT_CODE:
        raise signals.Interrupted(RESUME_HINT)
    if code == 0:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        spent = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(cpu, 1)}
        write_json(_record(step, place), {**begun, **spent, "ended": time.strftime("%Y-%m-%d %H:%M")})
    return code


def _record(step: Step, place: Place) -> Path:
    return place.folder(step.name).with_name(f"{step.name}.json")


def _log(step: Step, place: Place) -> Path:
    return place.folder(step.name).with_name(f"{step.name}.log")


OURS = "our prompt"
RATES, COMPARATIVE = "hallucination_rates", "halludial_comparative"
CORPORA = {RATES: "halludial", COMPARATIVE: "halludial"}  # of benchmarks with another name
FOLDERS = ("halludial", "halueval", "ragtruth", "diahalu")
NUMBER = "judge.examples="


def needed_prompts(arguments: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the folder and the names of the prompts that a step asks with; no names if it asks no language model."""
    given = dict(argument.split("=", 1) for argument in arguments)
    benchmark = given.get("benchmark", "")
    folder = CORPORA.get(benchmark, benchmark)
    if benchmark == RATES:
        return folder, ("reply",)
    if "engine.model" not in given:  # a trained judge has the prompt of its training
        return folder, ()
    if benchmark == COMPARATIVE:
        return folder, ("comparative",)
    if measure := given.get("selfcheck.measure"):
        support = ("support",) if measure == "prompt" else ()
        sampled = {"engine": ("reply",), "rephrased": ("rephrase",), "others": ()}
        return folder, (*sampled[given.get("selfcheck.samples", "engine")], *support)
    if "examiner.turns" in given:
        return folder, ("examiner_questions", "examiner_answers", "examiner_decision")
    return folder, (given.get("judge.ask", "verdict"),)


def find_prompts(arguments: Sequence[str], prompts: Path | None) -> list[Path]:
    """Finds the files of a step's prompts; empty if one is missing, or if the step needs none."""
    folder, names = needed_prompts(arguments)
    if prompts is None or not names or not (prompts / folder).is_dir():
        return []
    files = {name: sorted((prompts / folder).glob(f"{name}.*")) for name in names}
    if any(not [file for file in found if file.suffix == SUFFIX] for found in files.values()):
        return []
    system = prompts / folder / SYSTEM_FILE
    return [*(file for found in files.values() for file in found), *([system] if system.is_file() else [])]


def describe_prompts(arguments: Sequence[str], prompts: Path | None) -> str:
    """Names the prompts of a step: ours, or the user's files with their fingerprints; empty if it has none."""
    if not needed_prompts(arguments)[1]:
        return ""
    files = find_prompts(arguments, prompts)
    prints = {file: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}
    return ", ".join(f"{file.parent.name}/{file.name} {print_}" for file, print_ in prints.items()) or OURS


def check_prompts(key: str, path: str) -> Iterator[UserError]:
    """Yields problems for a folder of prompts: unknown or missing folders, and files that cannot be used."""
    from judge.prompt import read_prompts

    root = Path(path).expanduser()
    folders = [one.name for one in root.iterdir() if one.is_dir()] if root.is_dir() else []
    for unknown in [name for name in folders if name not in FOLDERS]:
        yield UserError(f"{key}: no paper has prompts in {unknown}", place=path, hint=choice_hint(unknown, FOLDERS))
    if not folders:
        hint = f"make folders such as {FOLDERS[0]}/ with the prompts' files (docs/papers/reproducing.md)"
        yield UserError(f"{key}: here is no folder of a paper's prompts", place=path, hint=hint)
    for folder in [name for name in FOLDERS if name in folders]:
        for ask in [name for name in ASKS if list((root / folder).glob(f"{name}.*"))]:
            try:
                read_prompts(ask, str(root / folder))
            except UserError as error:
                yield error
