"""Traces: a collector receives the span of a request with its verdicts, also those that wait when the service ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from faithkit.packages import install_hint
from tests.faithkit_workflows.serve.running_server import ROW, run_server
from tests.running import ROOT

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def collect() -> Iterator[tuple[str, list[Any]]]:
    """Runs a collector of OTLP over HTTP; yields its address and the spans that it has received."""
    message = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    spans: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = message.ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            spans.extend(span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = Thread(target=collector.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{collector.server_port}", spans
        collector.shutdown()
        thread.join()


def values(found: Any) -> dict[str, Any]:
    """Reads the attributes of a span or an event."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found.attributes}


def test_spans_have_route_status_and_verdict_and_are_sent_before_the_end(default_file, monkeypatch) -> None:
    with collect() as (address, spans):
        monkeypatch.setenv(VARIABLE, address)
        with run_server(f"models={{tiny: 'default:{default_file}'}}") as server:
            _, _, verdict = server.reply("/v1/check", ROW, traceparent=f"00-{TRACE}-{PARENT}-01")
            assert server.reply("/v1/check", {"knowledge": "x"})[0] == 422
            assert server.end() == 0
    checks = [span for span in spans if span.name == "POST /v1/check"]
    assert [values(span)["http.response.status_code"] for span in checks] == [200, 422]
    assert (checks[0].trace_id.hex(), checks[0].parent_span_id.hex()) == (TRACE, PARENT)
    (event,) = checks[0].events
    assert event.name == "gen_ai.evaluation.result"
    assert values(event) == {
        "gen_ai.evaluation.name": "tiny",
        "gen_ai.evaluation.score.label": verdict["label"],
        "gen_ai.evaluation.score.value": verdict["probability"],
    }
    assert ROW["response"] not in str(spans)


def test_a_missing_package_is_named_with_the_command_that_installs_it(default_file: Path, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['opentelemetry.exporter'] = sys.modules['opentelemetry.sdk'] = None"
    (tmp_path / "sitecustomize.py").write_text(hide)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, VARIABLE: "http://127.0.0.1:9"}
    command = [sys.executable, str(ROOT / "serve.py"), f"checkpoint='default:{default_file}'", "port=0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    problem = f"error: {VARIABLE} needs the package opentelemetry"
    assert done.returncode == 2 and problem in done.stderr
    assert f"hint: {install_hint('opentelemetry')}" in done.stderr and "serves" not in done.stderr
