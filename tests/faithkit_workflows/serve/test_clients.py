"""Real clients of other services: OpenAI's, LettuceDetect's, and one of the Model Context Protocol."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.faithkit_workflows.serve.running_server import CONTEXT, ROW, RunningServer
from tests.running import ROOT

pytestmark = pytest.mark.xdist_group("serve-routes")


def test_openais_client_reads_the_verdict(server: RunningServer) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused")
    assert [model.id for model in client.models.list()] == ["tiny", "critic"]
    question, answer = str(ROW["question"]), str(ROW["response"])
    messages: list[object] = [
        {"role": "system", "content": CONTEXT},
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]
    reply = client.chat.completions.create(model="tiny", messages=messages, temperature=0)  # type: ignore[arg-type]
    verdict = json.loads(reply.choices[0].message.content or "")
    assert verdict["probability"] == server.reply("/v1/check", ROW)[2]["probability"]
    chunks = client.chat.completions.create(model="tiny", messages=messages, stream=True)  # type: ignore[arg-type]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)  # type: ignore[union-attr]
    assert json.loads(text) == verdict
    with pytest.raises(openai.UnprocessableEntityError, match="the last message is no answer"):
        client.chat.completions.create(model="tiny", messages=messages[:2])  # type: ignore[arg-type]


def test_lettucedetects_client_reads_spans_and_tokens(server: RunningServer) -> None:
    client = pytest.importorskip("lettucedetect_api.client", reason="needs lettucedetect").LettuceClient(server.url)
    arguments = {"contexts": [CONTEXT], "question": ROW["question"], "answer": ROW["response"]}
    spans = client.detect_spans(**arguments).predictions
    assert all(span.text == ROW["response"][span.start : span.end] for span in spans)
    assert "".join(token.token for token in client.detect_token(**arguments).predictions) == ROW["response"]


def test_an_agent_calls_the_tool(default_file: Path) -> None:
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def call() -> None:
        command = [*("-m", "faithkit", "mcp"), "--checkpoint", f"default:{default_file}"]
        parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ), cwd=ROOT)
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await session.initialize()
            assert [tool.name for tool in (await session.list_tools()).tools] == ["check_answer"]
            arguments = {"context": [CONTEXT], "answer": ROW["response"], "question": ROW["question"]}
            found = await session.call_tool("check_answer", arguments)
            assert found.structured_content["label"] in ("faithful", "hallucinated")
            empty = await session.call_tool("check_answer", {"context": [], "answer": ""})
            assert empty.is_error

    asyncio.run(call())
