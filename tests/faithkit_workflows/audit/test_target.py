"""Targets: what functions may return, servers of two protocols, and names that lead nowhere."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.audit import target as targets
from faithkit_workflows.audit.target import PASSAGES, open_target, read_verdict
from tests.faithkit.inference.server import ChatServer
from tests.faithkit_workflows.audit.auditing import SMALL, audit, configure
from tests.faithkit_workflows.audit.faulty import good

TEXTS = {"knowledge": "It is red.", "response": "It is blue."}
ROW = Example(id="a", source="s", split="all", group="g", **TEXTS, meta={PASSAGES: ("It is red.",)})


@contextmanager
def span_server(fails_after: int | None = None) -> Iterator[str]:
    """A server with LettuceDetect's protocol, which marks whole answers that their context does not hold."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            if self.path != "/v1/lettucedetect/spans" or (fails_after is not None and len(asked) > fails_after):
                self.send_error(503)
                return
            (score,) = good([{"context": "\n\n".join(body["contexts"]), "answer": body["answer"]}])
            span = {"start": 0, "end": len(body["answer"]), "text": body["answer"], "hallucination_score": score}
            content = json.dumps({"predictions": [span] if score else []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


FAITHFUL_ONES: list[tuple[Any, float | None]] = [
    *[(0, 0.0), (np.float32(0.25), 0.25), (np.bool_(False), 0.0), ("supported", None)],
    *[({"probability": 0.4}, 0.4), (Prediction(id="another", label=FAITHFUL, score=0.1), 0.1)],
]
HALLUCINATED_ONES: list[tuple[Any, float | None]] = [
    *[(0.7, 0.7), (True, 1.0), ("Hallucinated", None), ({"probability": 0.4, "label": "hallucinated"}, 0.4)],
    ({"probability": 0.9, "spans": [{"start": 6, "end": 10}]}, 0.9),
]
NO_VERDICTS: list[tuple[Any, str]] = [
    *[(float("nan"), "NaN"), (1.5, "outside of 0 to 1"), (None, "NoneType"), ("perhaps", "unknown label")],
    *[({}, "without probability and label"), (np.zeros(3), "not a number")],
    ({"label": "faithful", "spans": [{"start": 0, "end": 99}]}, "beyond the answer"),
    ({"label": "faithful", "spans": [3]}, "without start and end"),
    (Prediction(id="a", failed=True, text="time-out"), "request failed: time-out"),
]


def test_a_function_may_return_numbers_labels_and_dicts_with_spans() -> None:
    for label, values in ((FAITHFUL, FAITHFUL_ONES), (HALLUCINATED, HALLUCINATED_ONES)):
        for value, score in values:
            found = read_verdict(value, ROW, 0.5)
            assert isinstance(found, Prediction) and (found.id, found.label, found.score) == ("a", label, score), value
    assert isinstance(found, Prediction) and [(span.start, span.end) for span in found.spans] == [(6, 10)]


@pytest.mark.parametrize(("value", "reason"), NO_VERDICTS)
def test_what_is_no_verdict_is_named(value: Any, reason: str) -> None:
    found = read_verdict(value, ROW, 0.5)
    assert isinstance(found, str) and reason in found


def test_a_server_with_the_protocol_of_lettucedetect_is_audited(tmp_path: Path) -> None:
    with span_server() as url:
        done = audit(url, tmp_path, *SMALL)
    assert not done.problems and done.figures.detection.marked is not None
    assert "batch order" not in done.figures.invariance.comparisons, "it gets rows one by one"


def test_a_server_that_stops_is_counted_and_the_rest_is_audited(tmp_path: Path) -> None:
    with span_server(fails_after=20) as url:
        done = audit(url, tmp_path, *SMALL)
    assert sum(done.problems.values()) == done.figures.num_failed > 30
    assert any("503" in reason for reason in done.problems)
    assert done.figures.detection.score is not None
    assert done.faults[-1].name == "no verdict"


def test_a_reply_that_is_too_large_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MAX_REPLY_BYTES", 30)  # an answer without spans has 19, one with a span more
    with span_server() as url:
        done = audit(url, tmp_path, *SMALL)
    assert any("more than 30 bytes" in reason for reason in done.problems)
    assert 0 < done.figures.num_failed < done.figures.num_asked


def test_an_openai_server_is_audited_as_a_judge(tmp_path: Path) -> None:
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}) as server:
        done = audit(server.url, tmp_path, *SMALL)
    assert done.target == f"small at {server.url}" and not done.problems
    assert [fault.name for fault in done.faults][:1] == ["one verdict for all"]
    with ChatServer(models=("one", "two")) as server, pytest.raises(UserError, match="server_model=one"):
        open_target(configure(server.url))
