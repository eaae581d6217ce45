"""A talk in the terminal: commands, verdicts, clean ends, and text that cannot steer the terminal."""

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit_workflows.chat import talk
from generation.generator import Advance
from tests.running import ROOT


class Echo:
    """Answers with what it was given, so that a test sees it."""

    def __init__(self, text: str | None = None):
        self.text = text

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        (example,) = examples
        if "too long" in example.knowledge:
            raise UserError("knowledge alone takes 900 tokens", hint="shorten it")
        said = self.text or f"{example.knowledge}|{'+'.join(turn.text for turn in example.history)}"
        return [Prediction(id=example.id, text=said, label=HALLUCINATED, score=0.93)]


def transcript(answerer: Echo, *lines: str) -> str:
    given, stream = iter(lines), io.StringIO()

    def read(prompt: str) -> str:
        try:
            return next(given)
        except StopIteration as error:
            raise EOFError from error

    try:
        talk(answerer, read, Console(file=stream, width=200))
    except EOFError:
        stream.write("<end>")
    return stream.getvalue()


def test_each_answer_stands_with_its_verdict_and_the_history_grows() -> None:
    shown = transcript(Echo(), "", "The river", "is long.", "", "Hello", "And?", "/quit")
    assert "bot> The river is long.|Hello\n" in shown and "hallucinated, P(hallucinated) 0.93" in shown
    assert "|Hello+The river is long.|Hello+And?\n" in shown
    assert "<end>" not in shown


def test_knowledge_is_changed_history_forgotten_and_an_unknown_command_explained() -> None:
    shown = transcript(Echo(), "one", "", "Hi", "/knowledge", "two", "", "/forget", "Who?", "/what", "  ")
    assert "bot> two|Who?\n" in shown and shown.count("/quit: leave") == 2 and shown.endswith("<end>")


def test_knowledge_that_does_not_fit_is_told_and_the_talk_goes_on() -> None:
    shown = transcript(Echo(), "too long", "", "Hi", "/knowledge", "short", "", "Again", "/quit")
    assert "hint: shorten it" in shown and "bot> short|Again\n" in shown


def test_what_the_model_writes_cannot_steer_the_terminal() -> None:
    shown = transcript(Echo("\x1b[2Jgone [red]\u202etxt"), "one", "", "Hi", "/quit")
    assert "\x1b[2J" not in shown and "\\x1b[2Jgone [red]\\u202etxt" in shown


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "faithkit_workflows.chat", *arguments]


class Terminal:
    """Our end of a terminal; what was not waited for yet is kept, since one read may bring several prompts."""

    def __init__(self, ours: int):
        self.ours, self.unread = ours, ""

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def wait_for(self, words: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while words not in self.unread:
            assert time.monotonic() < until, self.unread
            if select.select([self.ours], [], [], 0.2)[0]:
                self.unread += os.read(self.ours, 4096).decode()
        self.unread = self.unread.partition(words)[2]


@pytest.mark.slow
@pytest.mark.parametrize(("end", "exit_code"), [("ctrl-d", 0), ("ctrl-c", 130)])
def test_in_a_terminal_it_ends_cleanly(end: str, exit_code: int, tiny_llama: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = Terminal(ours)
    options = [f"checkpoint={tiny_llama}", "decoding=greedy", "decoding.max_new_tokens=4"]
    process = subprocess.Popen(command(*options), cwd=ROOT, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    terminal.wait_for("empty line")
    terminal.type(b"The river is long.\n\n")
    terminal.wait_for("you>")
    terminal.type(b"Is it?\n")
    terminal.wait_for("bot>")
    terminal.wait_for("you>")
    if end == "ctrl-d":
        terminal.type(b"\x04")
        _, errors = process.communicate(timeout=30)
    else:
        errors = _interrupted(process)
    os.close(ours)
    assert process.returncode == exit_code and b"Traceback" not in errors, errors


def _interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """Presses Ctrl-C until the process ends; gives its errors.

    `input()` with readline shows its prompt before it listens: a signal between the two waits for the next one. A
    second signal must not meet a process that is ending already, which takes seconds on a busy machine.
    """
    time.sleep(1)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError("Ctrl-C does not end it")
