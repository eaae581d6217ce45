"""Start, drain, replacement and death of a server."""

import json
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faithkit_workflows.serve.running_server import PATIENCE, ROW, run_server
from tests.running import run

pytestmark = pytest.mark.xdist_group("serve-limits")


def test_sigterm_answers_what_is_accepted_and_ends_with_0(default_file: Path) -> None:
    slow = {**ROW, "knowledge": " ".join(f"Sentence {n} is so." for n in range(2500))}
    with run_server(f"checkpoint='default:{default_file}'", waits=False) as server:
        assert server.reply("/health/live")[0] == 200  # before the model is loaded
        server.wait_until_ready()
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(server.reply, "/v1/check", slow) for _ in range(4)]
            while "faithkit_requests_in_flight 5.0" not in server.reply("/metrics")[2].decode():
                time.sleep(0.01)
            assert server.end(signal.SIGTERM) == 0
            assert [one.result(PATIENCE)[0] for one in running] == [200] * 4
        with pytest.raises(OSError):
            server.reply("/health/live")


@pytest.mark.parametrize("signals", [1, 2])
def test_what_is_unanswered_at_the_end_is_refused_in_the_documented_form(default_file: Path, signals: int) -> None:
    slow = {"rows": [{**ROW, "knowledge": " ".join(f"Sentence {n} is so." for n in range(9000))}] * 40}
    drain = "drain_seconds=1" if signals == 1 else "drain_seconds=60"
    with run_server(f"checkpoint='default:{default_file}'", drain, "max_body_bytes=100000000") as server:
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(server.reply, "/v1/check", slow) for _ in range(2)]
            while "faithkit_requests_in_flight 3.0" not in server.reply("/metrics")[2].decode():
                time.sleep(0.01)
            for _ in range(signals - 1):
                server.process.send_signal(signal.SIGTERM)
                server.wait_for("ending")
            assert server.end(signal.SIGTERM) == 0, server.log.read_text()
            replies = [one.result(PATIENCE) for one in running]
        assert [(status, reply["error"]["code"]) for status, _, reply in replies] == [(503, "draining")] * 2


def test_a_checkpoint_is_replaced_while_requests_are_served(default_file: Path, tmp_path: Path) -> None:
    served = tmp_path / "served.json"
    shutil.copy(default_file, served)
    with run_server(f"checkpoint='default:{served}'") as server:
        before, statuses, ended = server.reply("/v1/check", ROW)[2], list[int](), threading.Event()

        def send() -> None:
            while not ended.is_set():
                statuses.append(server.reply("/v1/check", ROW)[0])

        with ThreadPoolExecutor(4) as pool:
            senders = [pool.submit(send) for _ in range(4)]
            served.write_text("{}")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("cannot be loaded")  # the one that serves goes on
            from faithkit_workflows.detectors.loading import load_checkpoint

            detector: Any = load_checkpoint({"checkpoint": f"default:{default_file}", "precision": "32-true"}).detector
            detector.model.with_threshold(0.123).write(served)
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + PATIENCE
            while server.reply("/v1/check", ROW)[2]["threshold"] == before["threshold"]:
                assert time.monotonic() < end
            ended.set()
            for sender in senders:
                sender.result(PATIENCE)
        assert set(statuses) == {200}
        assert server.reply("/v1/check", ROW)[2]["threshold"] == 0.123
        assert server.end(signal.SIGINT) == 130


def test_a_killed_server_starts_again_on_its_port(default_file: Path) -> None:
    checkpoint = f"checkpoint='default:{default_file}'"
    with run_server(checkpoint) as first:
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(first.reply, "/v1/check", ROW) for _ in range(64)]
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
            assert all(one.exception() or one.result()[0] == 200 for one in running)
        with run_server(checkpoint, f"port={first.port}") as second:
            assert second.port == first.port and second.reply("/v1/check", ROW)[0] == 200


def test_mistakes_at_the_start_are_explained(default_file: Path, tmp_path: Path) -> None:
    checkpoint = f"checkpoint='default:{default_file}'"
    with run_server(checkpoint) as server:
        taken = run("serve.py", checkpoint, f"port={server.port}")
    assert taken.returncode == 2 and "port=0 for a free one" in taken.stderr
    unknown = run("serve.py", "checkpoint=runs/typo")
    assert unknown.returncode == 2 and "runs/typo" in unknown.stderr
    with run_server(f"checkpoint='default:{tmp_path / 'missing.json'}'", waits=False) as server:
        server.wait_for("cannot be loaded")
        status, _, states = server.reply("/health/ready")
        assert status == 503 and "missing.json" in json.dumps(states)
        assert server.reply("/v1/check", ROW)[2]["error"]["code"] == "loading"
