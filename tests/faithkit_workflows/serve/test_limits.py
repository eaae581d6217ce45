"""Refusals: each has its status, a code, the field and help; the server goes on with the others."""

import asyncio
import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.words import sentence_places
from faithkit_workflows.serve.app import judge_sentences
from faithkit_workflows.serve.schemas import STATUSES, CheckOne, CheckResult
from faithkit_workflows.serve.server import HEADER_SECONDS
from tests.faithkit_workflows.serve.running_server import ROW, RunningServer, run_server

pytestmark = pytest.mark.xdist_group("serve-limits")
CHECK, CHAT = "/v1/check", "/v1/chat/completions"
HEAD = f"POST {CHECK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF = "a secret \ud800"  # half of a character, which cannot be sent back
MESSAGES, ANSWERED = [{"role": "user", "content": "How long?"}], {"role": "assistant", "content": "It lasts."}


@contextmanager
def served_meanwhile(server: RunningServer) -> Iterator[None]:
    """Sends short requests all the while, and checks that each is answered."""
    ended, statuses = threading.Event(), list[int]()

    def send() -> None:
        while not ended.is_set():
            statuses.append(server.reply(CHECK, ROW)[0])

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert set(statuses) == {200}


@pytest.mark.parametrize(
    ("path", "body", "code", "field"),
    [
        (CHECK, {"response": "It lasts."}, "invalid_request", "knowledge"),
        (CHECK, {**ROW, "response": " \n"}, "invalid_request", "response"),
        (CHECK, {**ROW, "treshold": 0.5}, "invalid_request", "treshold"),
        (CHECK, {**ROW, "threshold": 1.5}, "invalid_request", "threshold"),
        (CHECK, {**ROW, "stream": "yes"}, "invalid_request", "stream"),
        (CHECK, {**ROW, "knowledge": []}, "invalid_request", "knowledge"),
        (CHECK, {**ROW, "response": "It lasts. " * 6_000}, "row_too_large", "response"),
        (CHECK, {"rows": [ROW, {**ROW, "response": "It lasts. " * 6_000}]}, "row_too_large", "rows.1.response"),
        ("/v1/score", {"text_1": 5, "text_2": "It lasts."}, "invalid_request", "text_1"),
        ("/v1/score", {"text_1": ["a", 5], "text_2": "It lasts."}, "invalid_request", "text_1.1"),
        ("/v1/score", {"text_1": [], "text_2": "It lasts."}, "invalid_request", "text_1"),
        ("/v1/score", {"text_1": "a", "text_2": ["b"] * 41}, "too_many_rows", "text_2"),
        ("/classify", {"input": [{"text": "a", "text_pair": "b"}] * 41}, "too_many_rows", "input"),
        ("/classify", {"input": {"text": "a"}}, "invalid_request", "input.text_pair"),
        (CHECK, {**ROW, "knowledge": ["a", {"id": "b"}]}, "invalid_request", "knowledge.1.text"),
        (CHECK, {"rows": [ROW, {**ROW, "history": [{"speaker": "user"}]}]}, "invalid_request", "rows.1.history.0.text"),
        (CHECK, {"rows": []}, "invalid_request", "rows"),
        (CHECK, {"rows": [ROW] * 41}, "too_many_rows", "rows"),
        (CHECK, {"rows": [{}] * 40_000}, "invalid_request", "rows.0.knowledge"),
        (CHECK, {str(n): 0 for n in range(10_000)}, "invalid_request", None),
        (CHECK, b'{"rows": [{"\\ud800": 1}]}', "invalid_request", "rows.0"),
        (CHECK, b'{"knowledge": "a", "response": "b", "\\ud800": 1}', "invalid_request", None),
        (CHECK, {**ROW, "model": "unknown"}, "unknown_model", "model"),
        (CHECK, [ROW], "invalid_request", None),
        (CHECK, b'{"knowledge": ', "invalid_json", None),
        (CHECK, b'{"knowledge": "\xff\xfe", "response": "a"}', "invalid_json", None),
        (CHECK, b'{"knowledge": "\\ud800", "response": "a"}', "invalid_request", "knowledge"),
        (CHECK, b"[" * 100_000, "invalid_json", None),
        (CHECK, b'{"rows":' * 30_000, "body_too_large", None),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "invalid_request", "text_2"),
        (CHAT, {"messages": MESSAGES}, "invalid_request", "messages.0"),
        (CHAT, {"messages": [*MESSAGES, ANSWERED]}, "invalid_request", "messages"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "invalid_request", "messages.0.content"),
        (CHECK, {**ROW, "response": HALF}, "invalid_request", "response"),
        (CHECK, {"rows": [ROW, {**ROW, "question": HALF}]}, "invalid_request", "rows.1.question"),
        (CHECK, {**ROW, "knowledge": [{"id": HALF, "text": "a"}]}, "invalid_request", "knowledge.0.id"),
        (CHECK, {**ROW, "history": [{"text": HALF}]}, "invalid_request", "history.0.text"),
        (CHAT, {"messages": [{"role": "system", "content": HALF}]}, "invalid_request", "messages.0.content"),
        ("/v1/check/stream", {"knowledge": "a"}, "wrong_content_type", None),
        ("/v1/nothing", {}, "not_found", None),
        ("/v1/jobs/unknown", None, "unknown_job", "id"),
    ],
)
def test_each_refusal_names_what_is_wrong(server, path, body, code, field) -> None:
    status, headers, reply = server.reply(path, body)
    error = reply["error"]
    assert (status, error["code"], error["field"]) == (STATUSES[code], code, field)
    assert error["message"] and error["help"] and error["request_id"] == headers["x-request-id"]
    log = server.log.read_text()
    assert "Traceback" not in log and "secret" not in log


@given(st.binary(max_size=300))
def test_no_body_is_a_fault(server: RunningServer, body: bytes) -> None:
    status, _, reply = server.reply(CHECK, body)
    assert status in (400, 415, 422) and reply["error"]["code"] in STATUSES


def test_other_types_encodings_and_hosts_are_refused(server: RunningServer) -> None:
    assert server.reply(CHECK, b"a=b", Content_Type="text/plain")[2]["error"]["code"] == "wrong_content_type"
    bomb = gzip.compress(b" " * 50_000_000)
    assert server.reply(CHECK, bomb, Content_Encoding="gzip")[2]["error"]["code"] == "encoded_body"
    assert server.reply(CHECK, ROW, Host="elsewhere.example")[2]["error"]["code"] == "unknown_host"
    assert server.reply(CHECK, method="DELETE")[2]["error"]["code"] == "method_not_allowed"
    large = server.reply(CHECK, b" " * 300_000, Content_Type="application/x-ndjson")
    assert large[2]["error"]["code"] == "body_too_large"


def test_a_stream_of_single_letters_is_divided_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def count(text: str) -> list[tuple[int, int]]:
        read.append(len(text))
        return sentence_places(text)

    class Judge:
        settings = SimpleNamespace(max_response_characters=100_000)

        async def check(self, rows: Any, *_: Any, **__: Any) -> Any:
            verdict = CheckResult(label="faithful", verdict="faithful", probability=0.1, threshold=0.5, spans=[])
            return "judge", [verdict] * len(rows)

    async def pieces() -> Any:
        for letter in "a" * 20_000 + ". Then it ends.":
            yield letter

    async def run() -> list[str]:
        row = CheckOne(knowledge="a", response="a")
        return [event async for event in judge_sentences(Judge(), row, pieces(), None, {"request_id": "1"})]  # type: ignore[arg-type]

    monkeypatch.setattr("faithkit_workflows.serve.app.sentence_places", count)
    events = asyncio.run(run())
    assert [event.partition("\n")[0] for event in events] == ["event: sentence", "event: sentence", "event: verdict"]
    assert sum(read) < 20 * 20_000


def read_reply(connection: Any) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def test_a_body_of_200_megabytes_is_refused_before_it_is_read(server: RunningServer) -> None:
    with served_meanwhile(server), server.connect() as connection:
        connection.sendall(f"{HEAD}Content-Length: 200000000\r\n\r\n".encode())
        assert b"413" in read_reply(connection).split(b"\r\n")[0]
    with served_meanwhile(server), server.connect() as connection:  # without a length: as soon as it is too long
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(3000):
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            raise AssertionError("200 MB were read")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has closed the connection


def test_slow_and_aborted_uploads_end_alone(server: RunningServer) -> None:
    body = json.dumps(ROW).encode()
    with served_meanwhile(server):
        with server.connect() as slow, server.connect() as aborted:
            for connection in (slow, aborted):
                connection.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
            aborted.close()
            assert b"body_timeout" in read_reply(slow)
        time.sleep(0.2)
    assert "faithkit_queue_rows 0.0" in server.reply("/metrics")[2].decode()


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
        b"GET /" + b"a" * 70_000,
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    ],
)
def test_what_is_not_http_is_refused_in_the_documented_form(server: RunningServer, sent: bytes) -> None:
    size = len(server.log.read_bytes())
    with served_meanwhile(server), server.connect() as connection:
        connection.sendall(sent)
        head, _, body = read_reply(connection).partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 400 ") and error["code"] == "invalid_http" and error["help"]
    assert f"x-request-id: {error['request_id']}".encode() in head.lower()
    log = server.log.read_bytes()[size:]
    assert b"Traceback" not in log and b"a" * 300 not in log


def test_long_addresses_are_logged_cut_off(server: RunningServer) -> None:
    assert server.reply(f"/{'b' * 50_000}?{'c' * 10_000}")[0] == 404
    log = server.wait_for(r'"path": "/(b+)"')
    assert len(log) < 300 and "c" * 40 not in server.log.read_text()


def test_connections_without_a_request_are_closed(server: RunningServer) -> None:
    """Also one whose second request stops within its headers."""
    with server.connect() as silent, server.connect() as partial, server.connect() as second:
        partial.sendall(b"POST /v1/check HTTP/1.1\r\nHost: loc")
        second.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in second.recv(65536)
        second.sendall(b"GET /health")
        for connection in (silent, partial, second):
            connection.settimeout(HEADER_SECONDS + 20)
            read_reply(connection)  # ends where the server closes


def test_a_client_that_leaves_takes_its_rows_with_it(server: RunningServer) -> None:
    rows = [{"knowledge": f"Sentence {n} is so. " * 150, "response": "It is so."} for n in range(40)]
    body = json.dumps({"rows": rows}).encode()
    for _ in range(3):
        with server.connect() as connection:
            connection.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.05)
    end = time.monotonic() + 10
    while "faithkit_requests_in_flight 1.0" not in server.reply("/metrics")[2].decode():  # the one that asks
        assert time.monotonic() < end
    assert server.reply(CHECK, ROW)[0] == 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
def test_idle_connections_without_descriptors_are_logged_once(default_file: Path) -> None:
    with run_server(f"checkpoint='default:{default_file}'") as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (60, 60))
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(150)]
        server.wait_for("out of system resource")
        time.sleep(3)
        for one in idle:
            one.close()
        server.wait_until_ready()
        assert server.reply(CHECK, ROW)[0] == 200
        assert server.log.read_text().count("out of system resource") <= 2
