"""The routes of a running server: verdicts equal those of `score`, and real clients of others get their forms."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from data_modules.datasets.pairs import read_pairs
from faithkit.records import Example, Prediction
from faithkit_workflows.detectors.loading import load_checkpoint
from tests.faithkit_workflows.serve.running_server import CONTEXT, PATIENCE, ROW, RunningServer, stream_check
from tests.running import ROOT

ANSWERS = ROOT / "data_modules/everyday_answers/development.jsonl"
pytestmark = pytest.mark.xdist_group("serve-routes")


@pytest.fixture(scope="module")
def answers() -> Sequence[Example]:
    return read_pairs(ANSWERS)[::3][:96]


def predict(checkpoint: str, examples: Sequence[Example]) -> list[Prediction]:
    torch.set_num_threads(1)
    return list(load_checkpoint({"checkpoint": checkpoint, "precision": "32-true"}).detector.predict_examples(examples))


def as_row(example: Example) -> dict[str, object]:
    turns = [{"speaker": turn.speaker, "text": turn.text} for turn in example.history]
    return {"knowledge": example.knowledge, "history": turns or None, "response": example.response}


@pytest.mark.parametrize("model", ["tiny", "critic"])
def test_64_clients_get_the_digits_of_score(server, default_file, trained, answers, model) -> None:
    expected = predict(f"default:{default_file}" if model == "tiny" else str(trained), answers)
    places = [place for place in range(len(answers)) for _ in range(2)]
    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(lambda p: server.reply("/v1/check", as_row(answers[p]) | {"model": model}), places))
    for place, (status, headers, verdict) in zip(places, found, strict=True):
        assert (status, verdict["model"]) == (200, model)
        assert headers["x-request-id"] == verdict["request_id"]
        assert verdict["label"] == expected[place].label
        # The default's digits are the same in any batch; a critic's agree to 1e-6, as `Critic` states.
        bound = 0.0 if model == "tiny" else 1e-6
        assert verdict["probability"] == pytest.approx(expected[place].score, abs=bound, rel=0)
        spans = [(span["start"], span["end"], span["probability"]) for span in verdict["spans"]]
        assert spans == [(span.start, span.end, span.score) for span in expected[place].spans]


def test_rows_of_one_request_keep_their_order_and_thresholds(server: RunningServer) -> None:
    rows = [{**ROW, "threshold": 0.0}, {**ROW, "threshold": 1.0}, {**ROW, "response": "It holds 1.7 litres."}, ROW]
    status, _, found = server.reply("/v1/check", {"rows": rows})
    assert status == 200
    low, high, other, plain = found["verdicts"]
    assert (low["label"], low["threshold"]) == ("hallucinated", 0.0)
    assert (high["label"], high["threshold"], high["spans"]) == ("faithful", 1.0, [])
    assert low["probability"] == high["probability"] == plain["probability"] != other["probability"]


def test_a_row_in_another_language_has_the_language(server: RunningServer) -> None:
    german = {"knowledge": "Die Garantie gilt für zwei Jahre, und der Filter ist nicht dabei.", "response": "Drei."}
    status, _, found = server.reply("/v1/check", {"rows": [german, ROW]})
    assert status == 200 and found["verdicts"][0]["language"] == "de" and "language" not in found["verdicts"][1]
    assert server.reply("/v1/check", german)[2]["language"] == "de"
    assert "language" not in server.reply("/v1/check", ROW)[2]


def test_spans_name_the_passage_of_their_evidence_by_its_id(server: RunningServer) -> None:
    texts = {"leaflet": "Adults take 20 mg.", "card": "Hello. The warranty lasts 24 months."}
    passages = [{"id": name, "text": text} for name, text in texts.items()]
    _, _, found = server.reply("/v1/check", {**ROW, "knowledge": passages, "threshold": 0.0})
    for span in found["spans"]:
        assert span["text"] == ROW["response"][span["start"] : span["end"]]
        assert (span["relation"], span["element"]) == ("contradiction", "number")
        evidence = span["evidence"]
        assert evidence.pop("reason")
        assert evidence == {"id": "card", "text": "The warranty lasts 24 months.", "start": 7, "end": 36}
    assert found["spans"]


def read_events(content: bytes) -> list[tuple[str, dict[str, object]]]:
    events = [event.split("\n") for event in content.decode().strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


def test_a_stream_judges_each_sentence_then_the_whole(server: RunningServer) -> None:
    row = {**ROW, "response": "The warranty lasts 36 months. It holds 1.7 litres!"}
    _, headers, content = server.reply("/v1/check", {**row, "stream": True})
    assert headers["content-type"].startswith("text/event-stream")
    events = read_events(content)
    assert [name for name, _ in events] == ["sentence", "sentence", "verdict"]
    assert [event["text"] for _, event in events[:2]] == ["The warranty lasts 36 months.", "It holds 1.7 litres!"]
    whole = server.reply("/v1/check", row)[2]
    assert {**events[2][1], "request_id": 0} == {**whole, "request_id": 0}


def test_verdicts_come_while_the_response_is_written(server: RunningServer) -> None:
    with server.connect() as connection:
        received = stream_check(connection)
    assert received.count(b"event: sentence") == 2
    assert b'"text": "It holds 1.7 litres."' in received


def test_routes_of_other_services(server: RunningServer) -> None:
    verdict = server.reply("/v1/check", {**ROW, "threshold": None})[2]
    lettuce = {"contexts": [CONTEXT], "question": ROW["question"], "answer": ROW["response"]}
    spans = server.reply("/v1/lettucedetect/spans", lettuce)[2]["predictions"]
    assert [(s["start"], s["end"], s["text"], s["hallucination_score"]) for s in spans] == [
        (s["start"], s["end"], s["text"], s["probability"]) for s in verdict["spans"]
    ]
    tokens = server.reply("/v1/lettucedetect/token", lettuce)[2]["predictions"]
    assert "".join(token["token"] for token in tokens) == ROW["response"]
    assert bool(spans) == any(token["hallucination_score"] for token in tokens)
    pairs = {"text_1": CONTEXT, "text_2": ["The warranty lasts 36 months.", "It holds 1.7 litres."]}
    scored = server.reply("/v1/score", {**pairs, "model": "critic"})[2]
    assert [one["index"] for one in scored["data"]] == [0, 1]
    inputs = [{"text": CONTEXT, "text_pair": text} for text in pairs["text_2"]]
    classes = server.reply("/classify", {"input": inputs, "model": "critic"})[2]["data"]
    assert [one["probs"][1] for one in classes] == [one["score"] for one in scored["data"]]
    assert {one["label"] for one in classes} <= {"faithful", "hallucinated"}


def test_models_health_and_metrics(server: RunningServer) -> None:
    models = server.reply("/v1/models")[2]["data"]
    assert [(model["id"], model["marks_spans"]) for model in models] == [("tiny", True), ("critic", False)]
    assert server.reply("/v1/models/tiny")[2]["id"] == "tiny"
    assert server.reply("/v1/models/none")[2]["error"]["code"] == "unknown_model"
    assert server.reply("/health/live", Host="LOCALHOST")[2] == {"status": "live"}
    assert server.reply("/health/ready")[2]["models"] == {"tiny": "ready", "critic": "ready"}
    server.reply("/v1/check", ROW)
    server.reply("/v1/check", {**ROW, "model": "unknown"})
    text = server.reply("/metrics")[2].decode()
    assert 'faithkit_request_seconds_count{route="/v1/check",status="200"}' in text
    assert 'faithkit_errors_total{code="unknown_model"}' in text
    assert 'faithkit_verdicts_total{label="' in text and "faithkit_queue_rows 0.0" in text


def test_the_access_log_is_json_without_texts(server: RunningServer) -> None:
    id_ = server.reply("/v1/check", {**ROW, "response": "An unmistakable wording."})[2]["request_id"]
    server.wait_for(id_)
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line["request_id"] == id_]
    assert (line["path"], line["status"], line["rows"], line["model"]) == ("/v1/check", 200, 1, "tiny")
    assert "unmistakable" not in server.log.read_text()


def test_a_long_context_does_not_delay_short_requests(server: RunningServer) -> None:
    long = {**ROW, "knowledge": " ".join(f"Sentence {n} says that it is so." for n in range(5000))}
    done = threading.Event()

    def send_long() -> int:
        status = server.reply("/v1/check", long)[0]
        done.set()
        return status

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(send_long) for _ in range(3)]
        answered_before = 0
        while not done.is_set() and answered_before < 3:
            assert server.reply("/v1/check", ROW)[0] == 200
            answered_before += not done.is_set()
        assert [one.result(PATIENCE) for one in running] == [200] * 3
    assert answered_before


def test_repeated_passages_count_once_everywhere(server: RunningServer, default_file: Path, tmp_path: Path) -> None:
    from faithkit import check

    passages, checkpoint = [CONTEXT, "Hello there.", CONTEXT], f"default:{default_file}"
    response, question = str(ROW["response"]), str(ROW["question"])
    once, twice = (
        server.reply("/v1/check", {**ROW, "knowledge": given})[2]["probability"] for given in (passages[:2], passages)
    )
    found = check(context=passages, answer=response, question=question, by=checkpoint)

    def faithkit(*arguments: str) -> str:
        line = [sys.executable, "-m", "faithkit", *arguments]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    row = {"context": passages, "answer": response, "question": question}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    faithkit("score", str(tmp_path / "rows.jsonl"), f"checkpoint='{checkpoint}'", f"run_dir={tmp_path / 'scored'}")
    (line,) = (tmp_path / "scored" / "predictions" / "rows.jsonl").read_text().splitlines()
    for place, text in enumerate(passages):
        (tmp_path / f"{place}.txt").write_text(text)
    contexts = [part for place in range(3) for part in ("--context", str(tmp_path / f"{place}.txt"))]
    options = ("--question", question, "--checkpoint", checkpoint, "--json")
    checked = json.loads(faithkit("check", *contexts, *options, response))
    assert {once, twice, found.probability, json.loads(line)["score"], checked["probability"]} == {once}


def test_vllms_other_names_and_openais_usage_are_known(server: RunningServer) -> None:
    pair = {"queries": CONTEXT, "documents": [ROW["response"]]}
    named = {"text_1": CONTEXT, "text_2": [ROW["response"]]}
    scores = [server.reply(path, body)[2]["data"] for path, body in (("/score", pair), ("/v1/score", named))]
    assert scores[0] == scores[1]
    messages = [{"role": "system", "content": CONTEXT}, {"role": "assistant", "content": ROW["response"]}]
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    lines = server.reply("/v1/chat/completions", body)[2].decode().split("\n\n")
    *_, usage, end, _ = lines
    assert json.loads(usage.removeprefix("data: "))["usage"]["total_tokens"] == 0 and end == "data: [DONE]"


def test_openais_client_reads_the_verdict(server: RunningServer) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused")
    assert [model.id for model in client.models.list()] == ["tiny", "critic"]
    question, answer = str(ROW["question"]), str(ROW["response"])
    said = (("system", CONTEXT), ("user", question), ("assistant", answer))
    messages: list[object] = [{"role": role, "content": text} for role, text in said]
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
