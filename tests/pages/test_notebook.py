"""The notebook of the first hour: ten cells that run from the first to the last, and are kept without outputs."""

import ast
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.pages.test_commands import check_script
from tests.running import ROOT

PATH = ROOT / "docs" / "start" / "first_hour.ipynb"
CELLS: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
COMMANDS = [line.strip() for cell in CODE for line in cell.splitlines() if line.strip().startswith("!")]


def test_it_has_ten_cells_and_no_outputs() -> None:
    assert len(CELLS) == 10
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in CELLS)


def test_its_lines_of_python_name_what_there_is() -> None:
    names: set[str] = set()
    for cell in CODE:
        tree = ast.parse(
            "\n".join(line.replace("!", "pass  # ", 1) if "!{" in line else line for line in cell.split("\n"))
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = __import__(str(node.module), fromlist=[alias.name for alias in node.names])
                names |= {alias.name for alias in node.names if hasattr(module, alias.name)}
    assert {"generate", "Critic", "runs"} <= names


@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = dict(re.findall(r'^(\w+) = f"\{faithkit\} (.*)"$', "\n".join(CODE), re.MULTILINE))
    text = line.removeprefix("!").split("|")[0].format(faithkit="", **begins)
    words = shlex.split(text)
    check_script(words[0], words[1:], monkeypatch)


@pytest.mark.slow
@pytest.mark.network
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs pip install '.[docs]'")
    client = pytest.importorskip("nbclient", reason="needs pip install '.[docs]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(PATH, as_version=4)
    client.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "error" not in "".join(said).lower().replace("errors", ""), said
    assert any("second-test" in text and "macro_f1" in text for text in said)
