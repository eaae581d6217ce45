"""Weights that are not at hand are refused before torch is loaded, with what can be named in their place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT

NAME = "nobody/such-weights"
# Says at the end which of the heavy libraries were imported.
TELLING = """
import atexit, runpy, sys
atexit.register(lambda: print("loaded:", *(name for name in ("torch", "transformers") if name in sys.modules)))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
"""
SCRIPTS = {
    "train": (f"model.weights={NAME}", "run_dir={folder}/run"),
    "evaluate": (f"checkpoint={NAME}", "run_dir={folder}/run"),
    "generate": (f"checkpoint={NAME}", "run_dir={folder}/run"),
    "score": ("path={folder}/rows.csv", f"checkpoint={NAME}", "run_dir={folder}/run"),
    "chat": (f"checkpoint={NAME}",),
    "export": (f"checkpoint={NAME}", "output_dir={folder}/hf"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_weights_that_are_not_at_hand_are_refused_before_torch_is_loaded(script: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("knowledge,response\na,b\n")
    arguments = [argument.format(folder=tmp_path) for argument in SCRIPTS[script]]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TELLING, f"faithkit_workflows.{script}", *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:", "neither"
    said = done.stderr[done.stderr.index("error:") :]
    assert NAME in said and "not a folder here" in said and len(said.splitlines()) <= 3
    assert "hint: use a local name (" in said and "minilm" in said and "a folder" in said
