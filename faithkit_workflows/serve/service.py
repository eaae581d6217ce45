"""The served models with their queues: what every route calls."""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.detector import BUILT_IN, JUDGE
from faithkit_workflows.serve.batcher import Batcher
from faithkit_workflows.serve.keys import RateLimiter, read_keys
from faithkit_workflows.serve.problems import Problem
from faithkit_workflows.serve.schemas import CheckResult, Row
from faithkit_workflows.serve.served_model import Asked, ServedModel
from faithkit_workflows.serve.telemetry import Telemetry
from faithkit_workflows.settings.serving import ServeSettings

MIN_WORKERS = 2
LOADING_SECONDS = 5.0


class Service:
    """Judges rows with the models of the settings."""

    def __init__(self, settings: ServeSettings):
        self.settings = settings
        self.telemetry = Telemetry(lambda: self.num_waiting)
        self.limiter = RateLimiter(settings.rows_per_minute)
        self.keys: Mapping[str, str] = {}
        self.is_draining = False
        config = {name: getattr(settings, name) for name in ("threshold", "precision", "labels", "on_language")}
        self.models = {
            name: ServedModel(name, checkpoint, config) for name, checkpoint in settings.checkpoints().items()
        }
        self.jobs: Any = None  # the runner of jobs, if there is a folder for them
        self.ending = asyncio.Event()  # what is unanswered then is refused
        workers = settings.workers or max(MIN_WORKERS, os.cpu_count() or 1)
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
            message = "the model cannot be loaded" if model.problem else "the model is being loaded"
            raise Problem("loading", message, "see /health/ready", retry_seconds=LOADING_SECONDS)
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
