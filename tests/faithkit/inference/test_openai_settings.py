"""Address, model and key of a server are checked before anything is asked; the key is shown nowhere."""

import logging
import subprocess
import sys
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.openai_engine import OpenAiEngine
from tests.faithkit.inference.asking import GREEDY, SECRET, engine_for, questions
from tests.faithkit.inference.server import LIMITED, MODEL, ChatServer, Fault, refusal
from tests.running import ROOT

pytestmark = pytest.mark.usefixtures("quickly")


def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", f"{SECRET}\n")
    caplog.set_level(logging.DEBUG)
    faults = [LIMITED, refusal(500, f"Bearer {SECRET} crashed"), Fault(body=SECRET.encode())]
    always = refusal(418, f"Authorization: Bearer {SECRET}")
    with ChatServer(*faults, always=always) as server:
        engine = engine_for(server, api_key_variable="MY_KEY")
        (reply,) = engine.generate(questions(1), GREEDY)
    shown = f"{reply} {engine.identity} {engine.__dict__} {engine.usage} {caplog.text} {capfd.readouterr()}"
    assert server.keys[0] == f"Bearer {SECRET}" and "answered 418" in reply.problem
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"base_url": "localhost:8000"}, "engine.base_url is"),
        ({"base_url": "http://"}, "engine.base_url is"),
        ({"base_url": "http://h:99999/v1"}, "is not a URL"),
        ({"base_url": f"http://me:{SECRET}@h/v1"}, "contains more than an address"),
        ({"base_url": f"http://h/v1?key={SECRET}"}, "contains more than an address"),
        ({"model": " "}, "engine.model is"),
        ({"base_url": None}, "OPENAI_API_KEY is not set, and OpenAI needs a key"),
        ({"api_key_variable": "BAD_KEY"}, "BAD_KEY contains characters"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD_KEY", f"{SECRET} {SECRET}")
    with pytest.raises(UserError, match=problem) as raised:
        OpenAiEngine(**{"model": MODEL, "base_url": "http://localhost:1/v1", **options})
    assert SECRET not in str(raised.value) and raised.value.hint


def test_a_missing_package_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"pip install '\.\[openai\]'"):
        OpenAiEngine(MODEL, base_url="http://localhost:1/v1")


def test_the_client_is_imported_only_with_the_engine() -> None:
    code = "import sys, faithkit.inference.openai_engine, faithkit.inference.reply_cache"
    code += "; assert not {'openai', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
