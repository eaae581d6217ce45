"""On a real cluster of three nodes: whoever dies, the scored shards are those of one worker that nothing befell."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faithkit_workflows.ray.data import answer, score, scored, write_shards
from tests.running import ROOT

pytest.importorskip("ray", reason="needs the extra ray")
STORE = 80_000_000  # bytes: names pass through it
SHARDS = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards") / "data", SHARDS, 500)


@pytest.fixture(scope="module")
def expected(data: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one worker in this process makes of the shards."""
    out = tmp_path_factory.mktemp("expected") / "out"
    score(data, out, trained)
    return scored(out)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one CPU each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # of the workers
        from ray.cluster_utils import Cluster

        node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE}
        made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        for _ in range(2):
            made.add_node(**node)
        made.wait_for_nodes()
        yield made
        made.shutdown()


def command(data: Path, out: Path, checkpoint: Path, *overrides: str) -> "subprocess.Popen[str]":
    given = [str(data), f"out={out}", f"checkpoint={checkpoint}", "engine=ray", "num_resamples=20"]
    return start("faithkit_workflows.score", *given, *overrides)


def start(module: str, *arguments: str) -> "subprocess.Popen[str]":
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, env=environ, **pipes)


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=400)
    return process.returncode, output, errors


def accounts(out: Path) -> int:
    return len(list((out / "_faithkit" / "shards").glob("*.json")))


def wait_for(condition: Callable[[], Any], process: "subprocess.Popen[str]") -> Any:
    for _ in range(3000):
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    raise AssertionError("nothing has happened in five minutes")


def workers(node: Any) -> list[int]:
    """The processes of a node that hold a scorer."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and b"ShardWorker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("script", ["score", "generate"])
def test_a_worker_that_is_killed_costs_its_shard_in_flight(
    script: str, cluster: Any, data: Path, trained: Path, tiny_llama: Path, request: Any, tmp_path: Path
) -> None:
    out, options = tmp_path / "out", (f"ray.address={cluster.address}", "ray.workers=2")
    if script == "score":
        expected, process = request.getfixturevalue("expected"), command(data, out, trained, *options)
    else:
        answer(data, tmp_path / "expected", tiny_llama)
        expected, model = scored(tmp_path / "expected"), (f"checkpoint={tiny_llama}", "decoding.max_new_tokens=6")
        given = ["data=pairs", f"data.path={data}", f"out={out}", *model, "engine=ray", *options]
        process = start("faithkit_workflows.generate", *given)
    wait_for(lambda: accounts(out), process)
    victims = [pid for node in cluster.list_all_nodes() for pid in workers(node)]
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    assert accounts(out) < SHARDS, "the kill came too late to test anything"
    code, shown, errors = end(process)
    assert code == 0, errors
    assert scored(out) == expected
    assert f"6,000 rows in {SHARDS} shards" in shown and "0 failed" in errors


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_and_reads_no_finished_shard_again(cluster, data, trained, expected, tmp_path):
    out, copy = tmp_path / "out", shutil.copytree(data, tmp_path / "data")
    process = command(copy, out, trained, f"ray.address={cluster.address}", "ray.workers=2")
    wait_for(lambda: accounts(out) >= 2, process)
    process.kill()
    process.communicate()
    assert accounts(out) < SHARDS
    wait_for_end = time.monotonic() + 60
    while any(workers(node) for node in cluster.list_all_nodes()) and time.monotonic() < wait_for_end:
        time.sleep(0.2)  # Ray ends the workers of a driver that has died
    finished = (out / f"{path.name.partition('.')[0]}.parquet" for path in (out / "_faithkit/shards").iterdir())
    done = {path: path.stat().st_mtime_ns for path in finished}
    code, shown, errors = end(command(copy, out, trained, f"ray.address={cluster.address}", "ray.workers=2"))
    assert code == 0, errors
    assert scored(out) == expected
    assert "are scored already" in shown
    assert [path for path in done if path.stat().st_mtime_ns != done[path]] == []
    assert not list((out / "_faithkit" / "unfinished").iterdir()), "what the killed launch began is cleared away"


@pytest.mark.slow
def test_a_cluster_without_room_for_the_workers_is_refused(cluster, data, trained, tmp_path) -> None:
    for overrides, words in (
        (["ray.workers=9"], "room for 3 workers of 1 CPU, and 9 are needed\n  hint: ray.workers=3"),
        (["ray.cpus=2"], "room for 0 workers of 2 CPU"),
        (["ray.memory_gb=100000"], "room for 0 workers of 1 CPU, 100000.0 GiB of memory"),
    ):
        code, _, errors = end(command(data, tmp_path / "o", trained, f"ray.address={cluster.address}", *overrides))
        assert code == 2 and words in errors, errors
        shutil.rmtree(tmp_path / "o")


@pytest.mark.slow
def test_a_node_that_is_removed_gives_its_shard_to_the_others(cluster, data, trained, expected, tmp_path) -> None:
    out = tmp_path / "out"
    process = command(data, out, trained, f"ray.address={cluster.address}")  # a worker on every node
    wait_for(lambda: accounts(out), process)
    node = wait_for(lambda: next((n for n in cluster.list_all_nodes() if not n.head and workers(n)), None), process)
    cluster.remove_node(node, allow_graceful=False)
    assert accounts(out) < SHARDS, "the removal came too late to test anything"
    code, _, errors = end(process)
    assert code == 0, errors
    assert scored(out) == expected


@pytest.mark.slow
def test_without_an_address_the_machine_is_the_cluster(data, trained, expected, tmp_path) -> None:
    code, _, errors = end(command(data, tmp_path / "out", trained, "ray.workers=1"))
    assert code == 0, errors
    assert scored(tmp_path / "out") == expected
    assert "rows/s" in errors and "100%" in errors


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True], ids=["closed", "silent"])
def test_an_address_that_does_not_answer_is_reported(listens: bool, data: Path, trained: Path, tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listens:
            held.listen()
        address = f"127.0.0.1:{held.getsockname()[1]}"
        options = [f"ray.address={address}", "ray.timeout_seconds=3"]
        code, _, errors = end(command(data, tmp_path / "out", trained, *options))
    assert code == 2, errors
    message = errors[errors.index("error:") :]
    assert f"no Ray cluster answers at {address}" in message and len(message.strip().splitlines()) <= 3
