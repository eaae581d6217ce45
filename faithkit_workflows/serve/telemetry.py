"""What the service reports of itself: metrics for Prometheus, an access log in JSON, and traces for OpenTelemetry.

Texts of requests are in none of them, unless `log_texts=true` puts them into the access log.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from faithkit.packages import needs_package
from faithkit_workflows.serve.schemas import CheckResult

access_log = logging.getLogger("faithkit.access")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
EXPORTER = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
RECEIVE, QUEUE, JUDGE = "receive", "queue", "judge"  # the stages of a request


class Telemetry:
    """Counts and times requests.

    Args:
        num_waiting: Returns the rows in the queues.

    Raises:
        UserError: OpenTelemetry's exporter is named by its environment variable, and its package is missing.
    """

    def __init__(self, num_waiting: Callable[[], int]):
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Histogram(
            "faithkit_request_seconds", "Time of a request.", ["route", "status"], buckets=SECONDS, **options
        )
        self.stages = Histogram("faithkit_stage_seconds", "Time of a stage.", ["stage"], buckets=SECONDS, **options)
        self.batches = Histogram("faithkit_batch_rows", "Rows judged together.", buckets=ROWS, **options)
        self.verdicts = Counter("faithkit_verdicts", "Verdicts, by model and label.", ["model", "label"], **options)
        self.errors = Counter("faithkit_errors", "Refused requests, by code.", ["code"], **options)
        self.in_flight = Gauge("faithkit_requests_in_flight", "Requests without a reply.", **options)
        Gauge("faithkit_queue_rows", "Rows that wait.", **options).set_function(num_waiting)
        self._tracing: Any = None
        if not (variable := next((name for name in EXPORTER if os.environ.get(name)), None)):
            return
        with needs_package(variable):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "faithkit")})
        self._tracing = TracerProvider(resource=resource)
        self._tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    def record_batch(self, rows: int, seconds: float, waited: float) -> None:
        """Counts a batch."""
        self.batches.observe(rows)
        self.stages.labels(JUDGE).observe(seconds)
        self.stages.labels(QUEUE).observe(waited)

    def record_verdicts(self, model: str, verdicts: list[CheckResult]) -> None:
        """Counts verdicts, and adds them to the trace as events."""
        for verdict in verdicts:
            self.verdicts.labels(model, verdict.label).inc()
        if self._tracing is None:
            return
        from opentelemetry import trace

        for verdict in verdicts:
            values = {"gen_ai.evaluation.name": model, "gen_ai.evaluation.score.label": verdict.label}
            if verdict.probability is not None:
                values["gen_ai.evaluation.score.value"] = verdict.probability  # type: ignore[assignment]
            trace.get_current_span().add_event("gen_ai.evaluation.result", values)

    @contextmanager
    def trace(self, method: str, headers: Mapping[str, str], outcome: Callable[[], tuple[str, int]]) -> Iterator[None]:
        """Records a request as a span, if an exporter is set; it continues the trace of the header traceparent.

        Args:
            outcome: Returns route and status after the request.
        """
        if self._tracing is None:
            yield
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, StatusCode

        with self._tracing.get_tracer("faithkit").start_as_current_span(
            method, context=extract(headers), kind=SpanKind.SERVER, attributes={"http.request.method": method}
        ) as span:
            try:
                yield
            finally:
                route, status = outcome()
                span.update_name(f"{method} {route}")
                span.set_attributes({"http.route": route, "http.response.status_code": status})
                if status >= 500:
                    span.set_status(StatusCode.ERROR)

    def close(self) -> None:
        """Sends the spans that wait."""
        if self._tracing is not None:
            self._tracing.shutdown()
