"""All but faithkit_papers is imported, tested and run without it; a command that needs it says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.test_model_folder import write_critic
from tests.running import ROOT
from tests.test_imports import MODULES, imported, module_of

PAPERS = "faithkit_papers"
REFUSE = f"""
import sys
class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == {PAPERS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse)
"""


def run_without(code: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Runs Python code in a process in which the package cannot be imported."""
    started = [sys.executable, "-W", "ignore", "-c", f"{REFUSE}sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    return subprocess.run(started, cwd=folder, capture_output=True, text=True, timeout=120)


def faithkit(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the command `faithkit` without the package."""
    return run_without(f"from faithkit.__main__ import main\nsys.argv[1:] = {list(arguments)}\nmain()", folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labelled rows and a critic."""
    folder = tmp_path_factory.mktemp("core")
    write_critic(folder / "critic")
    rows = [f"The {word} lasts {n} days.,It lasts {n} days.,faithful" for n, word in enumerate("river city".split())]
    (folder / "rows.csv").write_text("\n".join(["knowledge,response,label", *rows]) + "\n")
    return folder


def test_every_other_module_is_imported() -> None:
    paths = [path for path in MODULES if path.stem != "__main__" and "adapters" not in path.parts]
    names = [name for name in map(module_of, paths) if name.partition(".")[0] != PAPERS]
    assert len(names) > 300
    done = run_without(f"import importlib\nfor name in {names}:\n    importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_no_test_of_another_package_imports_it() -> None:
    others = [path for path in (ROOT / "tests").rglob("*.py") if PAPERS not in path.parts]
    assert [path for path in others if PAPERS in imported(path)] == []


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("--help", "recompute tables of the papers"),
        ("check --context rows.csv --checkpoint critic x", "P(hallucinated)"),
        ("evaluate benchmark=pairs benchmark.path=rows.csv checkpoint=critic run_dir=evaluated", "macro-F1"),
    ],
)
def test_other_commands_run(command: str, shown: str, folder: Path) -> None:
    done = faithkit(*command.split(), folder=folder)
    assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "reproduce list",
        "construct pipeline=describe pipeline.dataset=pairs pipeline.path=rows.csv pipeline.plots=false",
        "construct pipeline=annotate pipeline.path=embedded",
        "construct pipeline=agreement pipeline.annotations=rows.csv",
        "evaluate benchmark=analysis benchmark.path=embedded",
        "evaluate benchmark=temperature_sweep benchmark.path=embedded checkpoint=critic "
        "benchmark.systems={one:{gold_predictions:rows.csv}} benchmark.histories=[gold] benchmark.plots=false",
    ],
)
def test_a_command_of_the_papers_says_what_to_install(command: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = faithkit(*command.split(), folder=folder)
    assert done.returncode == 2 and f"needs the package {PAPERS}" in done.stderr, done.stdout + done.stderr
    assert "  hint: pip install " in done.stderr and "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
