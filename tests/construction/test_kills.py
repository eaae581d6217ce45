"""A chain that is killed with -9 goes on without repeating a request, and ends in the same bytes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.reply_cache import CachedEngine
from tests.construction.steps import chain
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import ROOT

SCRIPT = """
import sys
from tests.construction.test_kills import run_chain

run_chain(*sys.argv[1:])
"""
NUMBER, CONCURRENCY = 40, 4


def run_chain(folder: str, url: str) -> None:
    """Runs the chain in a folder, with two branches that ask the server."""
    engines = [
        CachedEngine(OpenAiEngine(f"{MODEL}{name}", base_url=url, concurrency=CONCURRENCY), f"{folder}/replies.sqlite")
        for name in ("", " too")
    ]
    chain(Path(folder), engines, number=NUMBER, chunk_size=16).run(progress=False)


@pytest.mark.slow
def test_a_killed_chain_repeats_only_what_was_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with ChatServer(seconds=0.03, models=(MODEL, f"{MODEL} too")) as server:
        for asked_before in (13, 57):
            process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "run"), server.url], cwd=ROOT)
            while len(server.asked) < asked_before:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
        run_chain(str(tmp_path / "run"), server.url)
        asked = [(body["model"], body["messages"][-1]["content"]) for body in server.asked]
        run_chain(str(tmp_path / "whole"), server.url)
    assert len(set(asked)) == 2 * NUMBER and len(asked) <= 2 * NUMBER + 2 * CONCURRENCY
    files = sorted((tmp_path / "whole" / "steps").iterdir())
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "run" / "steps" / file.name).read_bytes() == file.read_bytes()
