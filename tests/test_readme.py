"""Runs what the README tells a newcomer to type: every command composes, and the first ones run."""

import re
import shlex
from pathlib import Path

import pytest

from data_modules.build import build_sources
from tests.faithkit.runs.folders import make_run
from tests.running import ROOT, SMALL, compose, evaluate_here, train_here
from workflows.score import as_override

README = (ROOT / "README.md").read_text()
NAMES = (
    *("judging", "constructing", "describing", "own_data", "domains"),
    *("sweeps", "reporting", "runs_in_python", "exporting"),
)
PAGES = README + "".join((ROOT / "docs" / f"{name}.md").read_text() for name in NAMES)
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGES, re.DOTALL)
LINES = [line.split("#")[0].strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
OWN_ARGUMENTS = "python -m speed."  # measurements have arguments of their own, not Hydra's
COMMANDS = [line for line in LINES if line.startswith(("python ", "faithkit ")) and not line.startswith(OWN_ARGUMENTS)]


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) >= 9


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_composes(line: str) -> None:
    _, script, *arguments = shlex.split(line.replace("python -m ", "python "))
    script = script.removesuffix(".py").rsplit(".", 1)[-1]
    overrides = as_override([argument for argument in arguments if argument != "-m"])
    overrides = [re.sub(r"=.*interval\(([^,]+),.*", r"=\1", argument) for argument in overrides]
    swept = [re.sub(r"=([^\[{]+?),.*", r"=\1", argument) if "-m" in arguments else argument for argument in overrides]
    assert compose(script, *swept) is not None


@pytest.mark.parametrize(("name", "run"), [("critic", "trained"), ("tagger", "trained_tagger")])
def test_the_python_lines_run(name: str, run: str, request: pytest.FixtureRequest) -> None:
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if f"{name} = " in code)
    folder = request.getfixturevalue(run)
    scope: dict[str, object] = {}
    exec(code.replace('"runs/..."', repr(str(folder))), scope)  # noqa: S102 - our own README
    assert name in scope


def test_the_lines_for_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": "x", "label": "faithful", "score": 0.25}]
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / name, predictions={"begin": rows})
    monkeypatch.chdir(tmp_path)
    for page in (README, (ROOT / "docs" / "runs_in_python.md").read_text()):
        (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import runs" in code)
        scope: dict[str, object] = {}
        exec(code, scope)  # noqa: S102 - our own pages
    assert len(scope["pairs"]) == 1 and len(scope["metrics"]) == 2  # type: ignore[arg-type]


def test_every_dataset_of_the_table_is_there() -> None:
    from data_modules.registry import SOURCES

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", README, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(SOURCES) | {"mix", "wow_then_faithdial"}


def test_a_mix_as_the_readme_writes_it_is_understood(tmp_path: Path) -> None:
    line = next(line for line in COMMANDS if "data=mix" in line)
    cfg = compose("train", *shlex.split(line)[2:])
    parts = [{**part, "path": str(tmp_path)} for part in cfg.data.parts]
    assert [(source.name, weight) for source, weight in build_sources(parts)] == [("audit", 2.0), ("snli", 1.0)]


@pytest.mark.slow
def test_the_transfer_table_is_one_command(tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [option for option in SMALL if not option.startswith("data.")]
    overrides = [f"model.weights={tiny_bert}", "data.num_rows=100", "logger=none", "callbacks.num_examples=0", *small]
    options = [f"benchmark.test.{name}.num_rows=60" for name in ("mnli", "begin", "faithcritic")]
    quoted = ",".join(f"'{override}'" for override in overrides)
    evaluate_here("benchmark=transfer", f"benchmark.overrides=[{quoted}]", *options, f"run_dir={tmp_path / 'run'}")
    shown = capsys.readouterr().out
    for part in ("DECODE", "DNLI", "MNLI", "FaithCritic", "71.6", "majority", "embedded corpus"):
        assert part in shown, part


@pytest.mark.slow
@pytest.mark.network
def test_the_demo_learns(tmp_path: Path) -> None:
    import json

    train_here(f"run_dir={tmp_path / 'run'}", "callbacks.progress_bar=false")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert metrics["test/embedded/macro_f1"]["low"] > 0.7
    assert metrics["test/embedded/difference/counted_macro_f1"]["low"] > 0.08, "above what counting gives"
