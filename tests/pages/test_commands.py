"""Every command of every page is one that its script, make or pip understands."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from faithkit.__main__ import COMMANDS, PACKAGES
from faithkit.cli import as_keys
from faithkit.errors import UserError
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS, mark_embedded
from faithkit_workflows.settings.engines import is_detector_file, read_detector_file
from tests.pages.reading import PAGES, STARTS, Command, blocks, commands, prose
from tests.running import QUICK, ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OTHERS = {"mkdocs": "docs"}  # modules of other packages, and the extra that brings them
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def check_script(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a script read its command line and check every value, short of the files, packages and accounts it needs."""
    module = importlib.import_module(f"{PACKAGES.get(name, 'faithkit_workflows')}.{name}")
    if not hasattr(module, "run_script"):  # it has arguments of its own, not Hydra's
        module.parse(arguments)
        return
    read: list[str] = []

    def stop(main: Any, config_name: str, doc: str, groups: tuple[str, ...], settings: str, **more: Any) -> None:
        sys.argv[1:] = more.get("prepare", list)(as_keys(sys.argv[1:], config_name))
        monkeypatch.setattr("faithkit.settings.check.find_missing", lambda script: iter(()))
        line = CommandLine(CONFIGS, config_name, sys.argv[1:], settings)
        if line.options.multirun:
            line.check_sweep()
            return
        cfg = line.compose()
        if cfg.get("resume") is None:  # else the settings of a folder count, which a page cannot have
            read.extend(line.check(cfg))

    monkeypatch.setattr(module, "run_script", stop)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module.run()
    assert read == [], "a page names a setting that has no effect"


def check_module(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that has arguments of its own: it is there, and knows the flags."""
    if name in OTHERS:
        assert any(name in needed for needed in EXTRAS[OTHERS[name]])
        return
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, f"there is no module {name}"
    own = Path(spec.origin).with_name("__main__.py") if spec.submodule_search_locations else Path(spec.origin)
    source = own.read_text(encoding="utf-8")
    for word in arguments:
        assert not word.startswith("--") or f'"{word}"' in source, f"{name} has no {word}"


def check_make(target: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"the Makefile has no {target}"
    for word in arguments:
        assert f"$({word.partition('=')[0]})" in MAKEFILE, word


def check_pip(verb: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert verb in ("install", "sync")
    assert all((ROOT / word).exists() for word in arguments if word.endswith(".lock"))
    for extra in re.findall(r"\[(.+?)\]", " ".join(arguments)):
        assert extra in EXTRAS


def check_pytest(first: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for before, word in pairwise(("", first, *arguments)):
        is_value = before.startswith(("--faithkit-", "--junitxml"))
        assert word.startswith("-") or is_value or (ROOT / word).exists() or word.endswith("test_answers.py"), word


def check_detector_file(text: str, redirection: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, redirection[0].removeprefix(">"))
        path.write_text(text, encoding="utf-8")
        assert is_detector_file(str(path)) and read_detector_file(str(path))["engine"]["model"]


def check_harness(first: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(zip([first, *arguments][::2], [first, *arguments][1::2], strict=True))
    path = options["--include_path"].strip("$(`)").split()
    assert path[:2] == ["python", "-m"]
    folder = ROOT / path[2].replace(".", "/")
    for task in options["--tasks"].split(","):
        assert (folder / f"{task.removeprefix('faithkit_')}.yaml").is_file(), task
    json.loads(options["--metadata"])


def check_wandb_sweep(verb: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's sweep.yaml starts a training that is understood, and names the metric that chooses its checkpoint."""
    (text,) = blocks("docs/guides/sweeps.md", "yaml")
    sweep = yaml.safe_load(text)
    values = {key: one.get("value", one.get("min", one.get("values"))) for key, one in sweep["parameters"].items()}
    given = [f"{key}={value[0] if isinstance(value, list) else value}" for key, value in values.items()]
    *words, last = sweep["command"]
    assert [*words[:3], last] == ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]
    check_script(sweep["program"].removesuffix(".py"), [*words[3:], *given], monkeypatch)
    cfg = CommandLine(
        CONFIGS, "train", [*words[3:], *given], "faithkit_workflows.settings.training:TrainSettings"
    ).compose()
    mark_embedded(cfg)
    assert sweep["metric"] == {"name": cfg.callbacks.monitor, "goal": f"{cfg.callbacks.mode}imize"}


def checker(words: list[str]) -> tuple[Callable[[str, list[str], pytest.MonkeyPatch], None], list[str]]:
    """Finds who knows a command, and what it is given: a name and arguments."""
    match words:
        case ["python", "-m", "faithkit", *rest] | ["faithkit", *rest] if rest != ["--version"]:
            assert rest[0] in COMMANDS, f"there is no command {rest[0]}"
            return check_script, rest
        case ["faithkit", "--version"]:
            return check_module, ["faithkit"]
        case ["python", "-m", name, *rest]:
            return check_module, [name, *rest]
        case ["python", script, *rest] if script.endswith(".py"):
            return check_script, [script.removesuffix(".py"), *rest]
        case ["make", *rest]:
            return check_make, rest
        case ["pip", *rest] | ["uv", "pip", *rest]:
            return check_pip, rest
        case ["echo", *rest]:
            return check_detector_file, rest
        case ["uv", "venv"]:
            return check_pip, ["install"]
        case ["pytest", *rest]:
            return check_pytest, rest or ["-q"]
        case ["wandb", *rest]:
            return check_wandb_sweep, rest
        case ["lm_eval", *rest]:
            return check_harness, rest
    raise AssertionError(f"no test knows this command: {shlex.join(words)}")


def write_begun(page: str, folder: str) -> None:
    """Writes what tells the pipeline of a run that an earlier command of the page began."""
    began = next((each.text for each in commands() if each.page == page and f"run_dir={folder}" in each.text), "")
    if pipeline := re.search(r"pipeline=(\w+)", began):
        Path(folder).mkdir(parents=True)
        Path(folder, "config.yaml").write_text(f"pipeline: {{name: {pipeline[1]}}}\n", encoding="utf-8")


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_command_of_a_page_is_understood(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in re.findall(r"resume=(\S+)", command.text):
        write_begun(command.page, folder)
    words = shlex.split(command.text.replace("...", "x"))
    while "=" in words[0]:  # a variable that is set for the command alone
        del words[0]
    check, (name, *arguments) = checker(words)
    try:
        check(name, arguments, monkeypatch)
    except UserError as error:
        assert str(error).startswith("nothing to resume: no config.yaml\n  at: runs/"), error


NEEDS = re.compile(r"\b(DIR|FILE|URL|NAME|RUN|JUDGE|CRITIC)\b|runs/|\.csv|\.json|\.\.\.")  # what a reader must have
CHEAP = re.compile(r"dry_run=true|--cfg job|construct|faithkit models|weights list")


def cheap_commands() -> list[Command]:
    """The commands that end in seconds and need nothing of the reader."""
    return [one for one in commands() if CHEAP.search(one.text) and not NEEDS.search(one.text)]


@pytest.mark.parametrize("command", cheap_commands(), ids=str)
def test_a_cheap_command_of_a_page_runs(command: Command, tmp_path: Path) -> None:
    words = shlex.split(command.text)
    if "construct.py" in words and "dry_run=true" not in words:
        words.append("dry_run=true")
    words = ["-m", "faithkit", *words[1:]] if words[0] == "faithkit" else words[1:]
    words = [str(ROOT / word) if word.endswith(".py") else word for word in words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


LEFT_OUT = {  # trainings that cannot run here, by what their command has
    "scale=paper": "needs a GPU and published weights",
    "data_dir=DIR": "reads several corpora of the reader",
    "resume=": "goes on with a run of the reader",
    "s3://": "reads a bucket",
    "support_tickets": "uses a package of the reader",
    "data.columns": "reads a table of the reader",
    "labelled.csv": "reads a table of the reader",
    "my.jsonl": "reads a table of the reader",
    "--cfg": "only shows the configuration",
}
TINY = ("model.num_epochs=1", "model.batch_size=4", "model.validations_per_epoch=1", *QUICK)
SIZES = {  # by the model: its tiny weights, and a length that the embedded rows fit in
    "critic": ("bert", "model.max_length=64"),
    "tagger": ("bert", "model.max_length=96"),
    "t5": ("t5", "model.max_length=320", "model.max_response_length=90"),
    "gpt2": ("llama", "model.max_length=320", "model.max_response_length=90"),
    "doha": ("bart", "model.max_length=128", "model.max_response_length=40"),
    "judge": ("llama", "model.max_length=1024", "data.validation_fraction=0.5", "data.num_rows=128"),
    "judge_lora": ("llama", "model.max_length=1024", "data.validation_fraction=0.5", "data.num_rows=128"),
}


def trainings() -> list[Command]:
    """The commands that train."""
    return [one for one in commands() if one.text.startswith(("python train.py", "faithkit train"))]


@pytest.mark.slow
@pytest.mark.parametrize("command", trainings(), ids=str)
def test_a_training_of_a_page_runs(
    command: Command, tmp_path: Path, tiny_bert: Path, language_models: dict[str, Path], trained: Path
) -> None:
    if reason := next((why for part, why in LEFT_OUT.items() if part in command.text), ""):
        pytest.skip(reason)
    if "wandb" in command.text:
        pytest.importorskip("wandb")
    model = re.search(r"\b(?:model=|experiment=)([a-z0-9]+(?:_lora)?)", command.text)
    weights, *sizes = SIZES[model[1] if model else "critic"]
    words = [re.sub(r"\b(DIR|FILE)\b", "embedded", word) for word in shlex.split(command.text)]
    words = [word.replace("runs/CRITIC", str(trained)) for word in words if not word.startswith("model.max_length=")]
    is_embedded = weights == "bert" and not any(word.startswith("data") or word == "model=tagger" for word in words)
    counts = (
        ("data.num_train=64", "data.num_validation=32", "data.num_test=32") if is_embedded else ("data.num_rows=32",)
    )
    given = [f"model.weights={ {'bert': tiny_bert, **language_models}[weights] }", *counts, *sizes, *TINY]
    start = ["-m", "faithkit", "train"] if words[0] == "faithkit" else [str(ROOT / "train.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-W", "ignore", *start, *words[2:], *given]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("metrics.json"))


def test_no_command_stands_outside_a_block_that_is_tested() -> None:
    for page in PAGES:
        loose = [
            line for line in prose(page).splitlines() if line.startswith("    ") and line.strip().startswith(STARTS)
        ]
        assert not loose, f"{page}: {loose[0]}"


def test_the_first_page_has_the_two_first_commands() -> None:
    beginning = PAGES["README.md"].split("\n## ")[0]
    assert "\nmake demo " in beginning and "\nmake test " in beginning


def test_the_extras_of_the_page_are_those_that_there_are() -> None:
    (named,) = re.findall(r"Extras bring what few need:\n(.*?)\.", PAGES["docs/reference/command_line.md"], re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", named)) == set(EXTRAS) - {"dev", "docs", "bench"}
