"""A cache is shared by processes and threads, and a killed run goes on from it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.reply_cache import CachedEngine
from tests.faithkit.inference.asking import GREEDY, ask
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import ROOT

SCRIPT = """
import sys
from tests.faithkit.inference.test_reply_cache_sharing import ask_all

print(*ask_all(*sys.argv[1:]))
"""
NUMBER = 60


def ask_all(url: str, path: str) -> tuple[int, int]:
    """Asks a server through a cache; gives how many replies were known, and how many were asked for."""
    engine = CachedEngine(OpenAiEngine(MODEL, base_url=url, concurrency=4), path)
    replies = list(engine.generate(ask(*map(str, range(NUMBER))), GREEDY))
    assert {reply.id: reply.texts for reply in replies} == {str(i): (str(i),) for i in range(NUMBER)}
    return engine.known, engine.asked


def start(server: ChatServer, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SCRIPT, server.url, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_asks_only_what_was_in_flight(path: Path) -> None:
    with ChatServer(seconds=0.03) as server:
        for asked_before in (13, 37):
            process = start(server, path)
            while len(server.asked) < asked_before:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        known, asked = ask_all(server.url, str(path))
        counts = [server.contents.count(str(i)) for i in range(NUMBER)]
    assert known + asked == NUMBER and known >= 37 - 2 * 4
    assert min(counts) == 1 and sum(counts) <= NUMBER + 2 * 4  # what was open at a kill came twice, and nothing else
    assert ask_all(server.url, str(path)) == (NUMBER, 0)  # the server is gone: nothing is asked of it


def test_two_processes_share_a_file(path: Path) -> None:
    with ChatServer(seconds=0.02) as server:
        process = start(server, path)
        while not server.asked:
            assert process.poll() is None
            time.sleep(0.002)
        assert sum(ask_all(server.url, str(path))) == NUMBER
        out, err = process.communicate(timeout=60)
        assert sum(map(int, out.split())) == NUMBER and not err
        assert ask_all(server.url, str(path)) == (NUMBER, 0)
