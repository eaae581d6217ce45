"""Training over two nodes with streamed shards: the model of one process, after the loss of a node as well."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from subprocess import Popen

import pytest
import torch

from faithkit.files.jsonl import read_predictions
from tests.data_modules.conftest import rows_of, write_shard
from tests.nodes import ADDRESSES, Hosts, two_hosts
from tests.running import ROOT, command, run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")]
NODES = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.num_nodes=2")
ONE = ("trainer.strategy=auto", "trainer.devices=1", "trainer.num_nodes=1", "trainer.accelerator=cpu")


@pytest.fixture
def options(tmp_path: Path, tiny_bert: Path) -> list[str]:
    folder, rows = tmp_path / "shards", rows_of(400)
    folder.mkdir()
    for number in range(8):
        write_shard(folder / f"train-{number:05}.parquet", rows[number * 40 : number * 40 + 40])
    write_shard(folder / "validation-00000.parquet", rows[320:360])
    write_shard(folder / "test-00000.parquet", rows[360:])
    data = ("data=pairs", f"data.path={folder}", "data.streaming=true", "data.batch_size=8")
    model = (f"model.weights={tiny_bert}", "model.dropout=0", "model.max_length=48", "model.num_epochs=4")
    quick = ("callbacks.num_resamples=20", "callbacks.progress_bar=false", "checkpoints=all", "logger=none")
    precise = ("optimizer.lr=1e-3", "trainer.precision=32-true", "trainer.num_threads=1")
    return ["model=critic", *data, *model, *quick, *precise]


def torchrun(hosts: Hosts, host: int, log: Path, arguments: list[str], port: int = 29611) -> Popen[bytes]:
    node = ("--nnodes=2", "--nproc-per-node=1", f"--node-rank={host}")
    meeting = (f"--master-addr={ADDRESSES[0]}", f"--master-port={port}")
    start = [sys.executable, "-m", "torch.distributed.run", *node, *meeting, str(ROOT / "train.py")]
    return hosts.start(host, [*start, *arguments], log)


def slurm(hosts: Hosts, host: int, log: Path, arguments: list[str]) -> Popen[bytes]:
    """As srun starts a task: with the variables by which Lightning knows SLURM."""
    names = {"JOB_ID": "7", "JOB_NAME": "train", "NTASKS": "2", "NTASKS_PER_NODE": "1", "NNODES": "2"}
    own = {"PROCID": str(host), "NODEID": str(host), "LOCALID": "0", "NODELIST": "node[1-2]"}
    environment = {f"SLURM_{name}": value for name, value in (names | own).items()}
    environment |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29612"}
    return hosts.start(host, command("train.py", *arguments), log, **environment)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def assert_same_model(one: Path, other: Path) -> None:
    ours, theirs = weights(one), weights(other)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in ours)
    scores, others = (read_predictions(str(folder / "predictions" / "pairs.jsonl")) for folder in (one, other))
    assert scores.keys() == others.keys() and len(scores) == 40
    assert all(others[i].score == pytest.approx(row.score, abs=1e-4) for i, row in scores.items())


def wait_for_steps(folder: Path, processes: list[Popen[bytes]], log: Path) -> None:
    """Waits until a checkpoint stands there."""
    deadline = time.monotonic() + 120
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes), log.read_text()
        time.sleep(0.1)


@pytest.mark.parametrize("start", [torchrun, slurm])
def test_two_nodes_train_the_model_of_one_process(start, options: list[str], tmp_path: Path) -> None:
    done = run("train.py", *options, "trainer=cpu", f"run_dir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    with two_hosts() as hosts:
        arguments = [*options, *NODES, f"run_dir={tmp_path / 'two'}"]
        nodes = [start(hosts, host, tmp_path / f"{host}.log", arguments) for host in (0, 1)]
        codes = [node.wait(timeout=240) for node in nodes]
    assert codes == [0, 0], (tmp_path / "0.log").read_text() + (tmp_path / "1.log").read_text()
    assert_same_model(tmp_path / "one", tmp_path / "two")


def test_a_lost_connection_and_a_restart_on_one_node_change_nothing(options: list[str], tmp_path: Path) -> None:
    done = run("train.py", *options, "trainer=cpu", f"run_dir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    folder, log = tmp_path / "two", tmp_path / "0.log"
    with two_hosts() as hosts:
        waiting = ("callbacks.save_every_seconds=0", "trainer.timeout_seconds=20")
        arguments = [*options, *NODES, f"run_dir={folder}", *waiting]
        nodes = [torchrun(hosts, host, tmp_path / f"{host}.log", arguments) for host in (0, 1)]
        wait_for_steps(folder, nodes, log)
        hosts.part()
        codes = [node.wait(timeout=120) for node in nodes]  # nobody stops them
    _end_workers(folder)
    assert 0 not in codes and "lost connection to another process of this command" in log.read_text()
    assert not (folder / "metrics.json").exists()
    done = run("train.py", f"resume={folder}", *ONE)
    assert done.returncode == 0 and "resuming at step" in done.stderr, done.stderr
    assert_same_model(tmp_path / "one", folder)


@pytest.mark.parametrize(("start", "told"), [(slurm, (0, 1)), (torchrun, (1,))])
def test_preempted_nodes_stop_with_a_checkpoint_and_go_on(start, told, options: list[str], tmp_path: Path) -> None:
    done = run("train.py", *options, "trainer=cpu", f"run_dir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    folder, log = tmp_path / "two", tmp_path / "0.log"
    with two_hosts() as hosts:
        arguments = [*options, *NODES, f"run_dir={folder}"]
        nodes = [start(hosts, host, tmp_path / f"{host}.log", arguments) for host in (0, 1)]
        wait_for_steps(folder, nodes, log)
        for host in told:
            nodes[host].send_signal(signal.SIGTERM)
        codes = [node.wait(timeout=60) for node in nodes]
        assert codes == [130, 130] if start is slurm else 0 not in codes, log.read_text()
        assert not (folder / "metrics.json").exists()
        nodes = [start(hosts, host, tmp_path / f"{host}.log", [f"resume={folder}"]) for host in (0, 1)]
        assert [node.wait(timeout=240) for node in nodes] == [0, 0], log.read_text()
    assert "resuming at step" in log.read_text()
    assert_same_model(tmp_path / "one", folder)


def _end_workers(folder: Path) -> None:
    """Ends the workers of killed agents, which torchrun starts in sessions of their own."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"run_dir={folder}" in (process / "cmdline").read_text().split("\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue
