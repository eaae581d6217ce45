"""The served models with their queues: threads judge the rows of concurrent requests, ordered by length.

A row is due when it has waited for a multiple of the time that judging it takes, so that short rows pass long ones; no
row that comes more than `MAX_PASSED_SECONDS` after another passes it. A thread takes the row that is due first, and
with it the rows nearest in length up to `batch_characters`, fewer where they would take more than a second. Rows longer
than a quarter of `batch_characters` are judged among themselves, and at least one thread is kept free of them: a long
context does not block short ones. A thread waits for further rows only while other requests are being received, and at
most `wait_seconds`.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from faithkit.detector import BUILT_IN, JUDGE
from faithkit.packages import needs_package
from faithkit_workflows.serve.keys import RateLimiter, read_keys
from faithkit_workflows.serve.schemas import CheckResult, Problem, Row
from faithkit_workflows.serve.served_model import Asked, ServedModel
from faithkit_workflows.settings.reporting import ServeSettings, is_loopback

Item = TypeVar("Item")
Result = TypeVar("Result")
FIRST_RATE = 20_000.0  # characters a second, until the first batch is measured
RATE_MEMORY = 0.7  # of the moving average
PASSED_TIMES = 20.0  # the time that judging a row takes: in this time shorter rows that came later may pass it,
MAX_PASSED_SECONDS = 10.0  # and never for longer
MAX_BATCH_SECONDS = 1.0  # for which rows are judged together: the next short row waits for the end of a batch
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RECEIVING, QUEUING, JUDGING = "receive", "queue", "judge"  # the stages of a request
LONG_SHARE = 0.25  # of the characters of a batch, above which a row is long


@dataclass(eq=False, slots=True)
class Waiting(Generic[Item, Result]):
    """A row that waits for its verdict."""

    item: Item
    size: int
    future: "asyncio.Future[Result]"
    loop: asyncio.AbstractEventLoop
    due: float
    since: float
    is_dropped: bool = False


class Batcher(Generic[Item, Result]):
    """Judges rows in threads.

    Args:
        judge: Takes the items of a batch; returns for each a result, or the exception that it is refused by.
        on_batch: Is called with the number of rows, the seconds in which they were judged, and the longest wait.
    """

    def __init__(
        self,
        judge: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        *,
        workers: int,
        batch_characters: int,
        wait_seconds: float,
        max_rows: int,
        on_batch: Callable[[int, float, float], None] = lambda rows, seconds, waited: None,
    ):
        self._judge, self._on_batch = judge, on_batch
        self._batch_characters, self._wait_seconds, self._max_rows = batch_characters, wait_seconds, max_rows
        self._waiting: list[Waiting[Item, Result]] = []
        self._condition = threading.Condition()
        self._is_closed, self._num_long, self._max_long = False, 0, max(1, workers - 1)  # threads with long rows
        self._rate, self._workers = FIRST_RATE, workers
        self._judged = 0  # characters that threads work on
        self.num_receiving = 0  # requests whose rows are not here yet
        self._threads = [threading.Thread(target=self._work, name=f"judge-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def num_waiting(self) -> int:
        """The rows that no thread has taken yet."""
        return len(self._waiting)

    @property
    def is_judging(self) -> bool:
        """Whether a thread has rows."""
        return self._judged > 0

    async def submit(self, items: Sequence[Item], sizes: Sequence[int]) -> list[Result]:
        """Judges items; a cancelled call drops those that still wait.

        Raises:
            Problem: The queue is full, or an item is refused.
        """
        loop = asyncio.get_running_loop()
        with self._condition:
            now, seconds = time.perf_counter(), PASSED_TIMES / self._rate  # of one character
            entries = [
                Waiting(item, size, loop.create_future(), loop, now + min(MAX_PASSED_SECONDS, seconds * size), now)
                for item, size in zip(items, sizes, strict=True)
            ]
            if len(self._waiting) + len(entries) > self._max_rows:
                characters = sum(one.size for one in self._waiting) + self._judged
                until_empty = min(60.0, characters / (self._rate * self._workers))
                help_ = "try again after the seconds in Retry-After"
                raise Problem("queue_full", "too many rows wait", help_, retry_seconds=until_empty)
            self._waiting += entries
            self._condition.notify(len(entries))
        try:
            return list(await asyncio.gather(*(entry.future for entry in entries)))
        finally:
            with self._condition:
                for entry in entries:
                    entry.is_dropped = True
                self._waiting = [entry for entry in self._waiting if not entry.is_dropped]

    def close(self) -> None:
        """Ends the threads; rows that wait are judged first."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._take():
            is_long = self._is_long(batch[0])
            began = time.perf_counter()
            try:
                results: Sequence[Result | Exception] = self._judge([one.item for one in batch])
            except Exception as error:  # only the rows of this batch fail
                results = [error] * len(batch)
            seconds, size = time.perf_counter() - began, sum(one.size for one in batch)
            with self._condition:
                self._judged -= size
                self._num_long -= is_long
                self._rate = RATE_MEMORY * self._rate + (1 - RATE_MEMORY) * size / max(seconds, 1e-6)
                self._condition.notify()
            for one, result in zip(batch, results, strict=True):
                one.loop.call_soon_threadsafe(_settle, one.future, result)
            self._on_batch(len(batch), seconds, began - min(one.since for one in batch))

    def _take(self) -> list[Waiting[Item, Result]]:
        """Takes the next batch; empty at the end."""
        with self._condition:
            while True:
                may_be_long = self._num_long < self._max_long
                ready = [one for one in self._waiting if may_be_long or not self._is_long(one)]
                if not ready:
                    if self._is_closed and not self._waiting:
                        return []
                    self._condition.wait()
                    continue
                first = min(ready, key=lambda one: one.due)
                is_long = self._is_long(first)
                left = min(self._batch_characters, int(self._rate * MAX_BATCH_SECONDS)) - first.size
                # No further rows arrive while no request is being received.
                may_fill = self.num_receiving and not self._is_closed and not is_long
                if may_fill and sum(one.size for one in self._waiting) < self._batch_characters:
                    seconds = ready[0].since + self._wait_seconds - time.perf_counter()  # of the first that came
                    if seconds > 0:
                        self._condition.wait(seconds)
                        continue
                batch = [first]
                others = [one for one in ready if one is not first and self._is_long(one) == is_long]
                for one in sorted(others, key=lambda other: abs(other.size - first.size)):  # the nearest in length
                    if one.size <= left:
                        batch.append(one)
                        left -= one.size
                taken = set(map(id, batch))
                self._waiting = [one for one in self._waiting if id(one) not in taken]
                self._judged += sum(one.size for one in batch)
                self._num_long += is_long
                return batch

    def _is_long(self, row: Waiting[Item, Result]) -> bool:
        return row.size > LONG_SHARE * self._batch_characters


def _settle(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    if future.done():  # its request was cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class Telemetry:
    """Counts and times requests, for Prometheus, and traces them for OpenTelemetry, all without their texts.

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
        names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        if not (variable := next((name for name in names if os.environ.get(name)), None)):
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
        self.stages.labels(JUDGING).observe(seconds)
        self.stages.labels(QUEUING).observe(waited)

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


class Service:
    """Judges rows with the models of the settings."""

    def __init__(self, settings: ServeSettings):
        self.settings = settings
        self.telemetry = Telemetry(lambda: self.num_waiting)
        self.limiter = RateLimiter(settings.rows_per_minute)
        self.keys: Mapping[str, str] = {}
        self.is_draining = False
        self.is_local = is_loopback(settings.host)  # its clients are users of this machine
        config = {name: getattr(settings, name) for name in ("threshold", "precision", "labels", "on_language")}
        self.models = {
            name: ServedModel(name, checkpoint, config) for name, checkpoint in settings.checkpoints().items()
        }
        self.jobs: Any = None  # the runner of jobs, if there is a folder for them
        self.ending = asyncio.Event()  # what is unanswered then is refused
        workers = settings.workers or max(2, os.cpu_count() or 1)
        self._batchers = {
            name: Batcher(
                model.judge,
                workers=1 if model.kind is BUILT_IN[JUDGE] else workers,  # a language model batches within one call
                batch_characters=settings.batch_characters,
                wait_seconds=settings.batch_wait_ms / 1000,
                max_rows=settings.max_queue_rows,
                on_batch=self.telemetry.record_batch,
            )
            for name, model in self.models.items()
        }
        self.read_keys()

    @property
    def num_waiting(self) -> int:
        """The rows in all queues."""
        return sum(batcher.num_waiting for batcher in self._batchers.values())

    @property
    def is_judging(self) -> bool:
        """Whether a thread judges rows."""
        return any(batcher.is_judging for batcher in self._batchers.values())

    def read_keys(self) -> None:
        """Reads the file of keys."""
        if self.settings.keys_path is not None:
            self.keys = read_keys(Path(self.settings.keys_path))

    def load(self) -> threading.Thread:
        """Loads the models in a thread; those that serve go on until their successor is ready."""

        def load_all() -> None:
            import torch

            torch.set_num_threads(1)  # the queue's threads are the parallelism; a row's digits then never vary
            for model in self.models.values():
                model.load()

        thread = threading.Thread(target=load_all, name="load", daemon=True)
        thread.start()
        return thread

    def count_receiving(self, change: int) -> None:
        """Counts the requests whose rows are not in a queue yet."""
        for batcher in self._batchers.values():
            batcher.num_receiving += change

    def find(self, name: str | None) -> ServedModel:
        """Finds a model that is ready.

        Raises:
            Problem: There is none of this name, or it is being loaded.
        """
        model = next(iter(self.models.values())) if name is None else self.models.get(name)
        if model is None:
            listed = ", ".join(self.models)
            raise Problem("unknown_model", "no such model is served", f"use one of: {listed}", field="model")
        if not model.is_ready:
            message, help = "the model is being loaded", "try again in some seconds"
            if model.problem:
                message, help = "the model cannot be loaded", "see /health/ready"
            raise Problem("loading", message, help, retry_seconds=5.0)
        return model

    async def check(
        self,
        rows: Sequence[Row],
        model: str | None,
        state: Mapping[str, Any],
        *,
        field: str = "rows",
        numbers: Sequence[int] | None = None,
    ) -> tuple[str, list[CheckResult]]:
        """Judges rows, and returns the model's name and the verdicts.

        Args:
            state: Of the request: its client, its id, and the facts for the log.
            field: The name of the rows in the request.
            numbers: Their places in it, where these are not 0, 1 and so on.

        Raises:
            Problem: A limit is exceeded, or a row is refused.
        """
        served, limits = self.find(model), self.settings
        if len(rows) > limits.max_rows:
            help_ = f"send at most {limits.max_rows} rows; tables go to POST /v1/jobs"
            raise Problem("too_many_rows", f"more than {limits.max_rows} rows are too many", help_, field=field)
        sizes, numbers = [], range(len(rows)) if numbers is None else numbers
        for number, row in zip(numbers, rows, strict=True):
            if (size := len(row.response)) > limits.max_response_characters:
                help_ = f"a response has at most {limits.max_response_characters} characters; divide it"
                part = f"{field}.{number}.{row.response_field}" if field else row.response_field
                raise Problem("row_too_large", f"a response has {size} characters", help_, field=part)
            texts = [text for _, text in row.passages()] + [turn.text for turn in row.history or ()]
            sizes.append(sum(map(len, (*texts, row.response, row.question or ""))))
        if (largest := max(sizes, default=0)) > limits.max_row_characters:
            help_ = f"a row has at most {limits.max_row_characters} characters"
            place = f"{field}.{numbers[sizes.index(largest)]}" if field else None
            raise Problem("row_too_large", f"a row has {largest} characters", help_, field=place)
        self.limiter.take(state["client"], len(rows))
        id_, facts = state["request_id"], state["facts"]
        asked = [Asked(row, row.to_example(f"{id_}:{place}", served.join)) for place, row in enumerate(rows)]
        verdicts = await self._batchers[served.name].submit(asked, sizes)
        self.telemetry.record_verdicts(served.name, verdicts)
        facts |= {"model": served.name, "rows": facts.get("rows", 0) + len(rows)}
        facts["hallucinated"] = facts.get("hallucinated", 0) + sum(one.label == "hallucinated" for one in verdicts)
        if limits.log_texts:
            facts.setdefault("texts", []).extend(row.model_dump(exclude_none=True) for row in rows)
        return served.name, verdicts
