"""Runs named steps over JSON lines. A kill loses no reply, and a change repeats only what depends on it.

Each step writes `steps/NN_name.jsonl`, one row for each input row and in the same order. Finished rows are never made
again: a resumed chain continues behind the last whole line. Rows are joined by their keys. A row that fails becomes a
failed row (construction/steps.py), so no other row shifts.

    chain = Chain(folder, "spontaneous", [
        Step(name="inputs", read=rows, settings={...}),
        Step(name="sample-small", after=("inputs",), branch="small", work=Ask(...)),
        Step(name="sample-large", after=("inputs",), branch="large", work=Ask(...)),
        Step(name="annotate", after=("sample-small", "sample-large"), work=Ask(...)),
    ])
    chain.run()

A step after several branches reads their rows together: those of one key follow each other, as `key@branch`. Memory
holds one chunk of rows.

The manifest says what each step was made of, how far it is, and what it counted. Each change replaces the whole file,
so a kill leaves the old or the new one. A step whose signature differs from that of its rows is made again.
"""

import hashlib
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from construction.steps import (
    FAILURE,
    KEY,
    TRIES,
    Row,
    Step,
    batched,
    failure_names,
    is_failed,
    join_branches,
    run_in_order,
)
from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import JsonlAppender, read_jsonl, write_jsonl

FOLDER, MANIFEST = "steps", "manifest.json"
RUNNING, DONE = "running", "done"
log = logging.getLogger("faithkit")


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """A step in the manifest.

    Args:
        file: Its rows, relative to the run's folder.
        signature: A hash of all that its rows depend on: settings, code, and the steps before it.
        rows_id: Identifies these rows; it changes each time the step is begun.
        made_of: The `rows_id` of each step before it.
        settings: What the signature is made of, for readers.
        engine: The identity of the model, weights included; empty for none.
        state: RUNNING until all rows are written.
        size: Bytes of its file, once it is done.
        failures: The number of failed rows by step and kind.
        usage: What its engine counted: requests, tokens, cost.
    """

    name: str
    file: str
    signature: str
    rows_id: str
    made_of: dict[str, str]
    settings: Mapping[str, Any]
    engine: str = ""
    state: str = RUNNING
    rows: int = 0
    size: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    began: str = ""
    ended: str = ""
    seconds: float = 0.0
    usage: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        failures = ", ".join(f"{number:,} {why}" for why, number in self.failures.items())
        usage = f"; {self.usage}" if self.usage else ""
        return f"{self.rows:,} rows{f', failed: {failures}' if failures else ''} in {self.seconds:.1f} s{usage}"


class Manifest:
    """The manifest of a run's folder.

    Args:
        pipeline: The name of the chain; the stored one if it is empty.

    Raises:
        UserError: The file is damaged.
    """

    def __init__(self, folder: Path, pipeline: str = ""):
        self.path, self.pipeline = folder / MANIFEST, pipeline
        self.steps: dict[str, StepRecord] = {}
        self.result: Mapping[str, Any] = {}
        if not self.path.exists():
            return
        names = {one.name for one in fields(StepRecord)}
        try:
            stored = json.loads(self.path.read_bytes())
            self.pipeline = pipeline or str(stored["pipeline"])
            self.result = dict(stored["result"])
            for step in stored["steps"]:
                self.steps[step["name"]] = StepRecord(**{k: v for k, v in step.items() if k in names})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"the manifest is damaged: {shorten(str(error))}"
            hint = f"delete {MANIFEST}: all steps are made again, and replies come from the cache"
            raise UserError(problem, place=str(self.path), hint=hint) from error

    def write(self) -> None:
        """Replaces the file."""
        steps = [asdict(step) for step in self.steps.values()]
        write_json(self.path, {"pipeline": self.pipeline, "steps": steps, "result": self.result})


def sign(*parts: Any) -> str:
    """Hashes what rows depend on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


class Chain:
    """Steps in a run's folder.

    Args:
        name: Of the pipeline, in the manifest.
        versions: Of the code and its libraries, for the manifest.

    Raises:
        UserError: The folder has a damaged manifest.
    """

    def __init__(self, folder: Path, name: str, steps: Sequence[Step], versions: Mapping[str, Any] | None = None):
        self.folder, self.steps, self.versions = folder, {step.name: step for step in steps}, versions or {}
        assert len(self.steps) == len(steps), "two steps have one name"
        self.numbers = {name: number for number, name in enumerate(self.steps, start=1)}
        # What the rows of a step depend on besides the rows before.
        self.settings = {step.name: {**step.work.settings(), **step.settings} for step in steps}
        self.signatures: dict[str, str] = {}
        for step in steps:  # each comes after those that it reads
            before = [self.signatures[one] for one in step.after]
            self.signatures[step.name] = sign(step.name, self.settings[step.name], before)
        self.manifest = Manifest(folder, name)

    def path(self, name: str) -> Path:
        """Gives the file of a step's rows."""
        return self.folder / FOLDER / f"{self.numbers[name]:02d}_{name}.jsonl"

    def rows(self, name: str) -> Iterator[Row]:
        """Reads the rows of a step, failed ones included."""
        return read_jsonl(self.path(name))

    def run(self, *, retry_failed: bool = False) -> None:
        """Makes all rows that are missing.

        Args:
            retry_failed: Makes only failed rows again, and what depends on them.
        """
        for name in self.manifest.steps.keys() - self.steps.keys():  # a model that was removed
            self._delete_rows(self.manifest.steps.pop(name).file)
        for step in self.steps.values():
            record, path = self.manifest.steps.get(step.name), self.path(step.name)
            if record is not None and (record.signature, record.made_of, record.file) != self._identity(step):
                record = None
            if record and record.state != RUNNING and not (path.exists() and path.stat().st_size == record.size):
                log.warning("%s: its rows were changed since they were made: the step is made again", step.name)
                record = None
            record = record or self._begin(step)
            if record.state == RUNNING:
                self._make_rows(step, record)
            if record.failures:
                self._repair(step, record, retry_failed)
            log.info("%s: %s", step.name, record)

    def _identity(self, step: Step) -> tuple[str, dict[str, str], str]:
        """Gives what identifies a step's rows: its signature, the rows that they are made of, and their file."""
        made_of = {name: self.manifest.steps[name].rows_id for name in step.after}
        return self.signatures[step.name], made_of, str(self.path(step.name).relative_to(self.folder))

    def _begin(self, step: Step) -> StepRecord:
        signature, made_of, file = self._identity(step)
        known = self.manifest.steps.get(step.name)
        for old in {file, known.file if known else file}:  # before the manifest names new rows
            self._delete_rows(old)
        record = StepRecord(
            name=step.name,
            file=file,
            signature=signature,
            rows_id=secrets.token_hex(4),
            made_of=made_of,
            settings=self.settings[step.name],
            began=_now(),
            versions=self.versions,
        )
        self.manifest.steps[step.name] = record
        self.manifest.write()
        return record

    def _delete_rows(self, file: str) -> None:
        (self.folder / FOLDER / Path(file).name).unlink(missing_ok=True)  # never outside, whatever a manifest names

    def _inputs(self, step: Step) -> Iterator[Row]:
        """Reads the rows before a step, or of its files; those of several branches are joined."""
        if step.read is not None:
            return iter(step.read())
        return self.rows(step.after[0]) if len(step.after) == 1 else self.join_branches(step.after)

    def join_branches(self, names: Sequence[str]) -> Iterator[Row]:
        """Reads the rows of several steps together, with the branch in their keys."""
        return join_branches({self.steps[name].branch or name: self.rows(name) for name in names})

    def _make_rows(self, step: Step, record: StepRecord) -> None:
        """Makes the rows that are missing behind the finished ones."""
        path, failures, num_rows = self.path(step.name), Counter[str](), 0
        with self._opened(step) as engine:
            if record.engine and record.engine != engine and path.exists():
                log.warning("%s: its model has changed: the step is made again", step.name)
                record = self._begin(step)
            record.engine = engine
            self.manifest.write()
            with JsonlAppender(path) as file:
                for row in read_jsonl(path):
                    num_rows += 1
                    failures.update(failure_names(row))
                total = sum(self.manifest.steps[name].rows for name in step.after) or None
                bar = tqdm(total=total, initial=num_rows, desc=step.name, unit="row")
                with bar:
                    for chunk in batched(islice(self._inputs(step), num_rows, None), step.work.chunk_size):
                        signals.check()
                        for row in run_in_order(step.name, step.work, chunk, bar.update):
                            file.append(row)
                            failures.update(failure_names(row))
                            num_rows += 1
                        file.sync()
            record.rows, record.state, record.size = num_rows, DONE, path.stat().st_size
            record.failures = dict(sorted(failures.items()))

    @contextmanager
    def _opened(self, step: Step) -> Iterator[str]:
        """Opens what a step works with, and gives its identity; its usage and time are recorded however it ends."""
        began = time.monotonic()
        try:
            yield step.work.open()
        finally:
            record = self.manifest.steps[step.name]
            record.usage = step.work.close() or record.usage
            record.seconds, record.ended = round(record.seconds + time.monotonic() - began, 3), _now()
            self.manifest.write()

    def _repair(self, step: Step, record: StepRecord, retry: bool) -> None:
        """Makes failed rows again: those that an earlier step has replaced, and with `retry` those of this step.

        The file is replaced as a whole. A kill leaves the old one; the replies that came are in the cache.
        """

        def must_redo(old: Row, before: Row) -> bool:
            return is_failed(old) and not is_failed(before) and (retry or old[FAILURE]["step"] != step.name)

        def pairs() -> Iterator[tuple[Row, Row]]:
            return zip(self.rows(step.name), self._inputs(step), strict=True)

        if not any(must_redo(old, before) for old, before in pairs()):
            return
        path, failures = self.path(step.name), Counter[str]()

        def repaired() -> Iterator[Row]:
            for chunk in batched(pairs(), step.work.chunk_size):
                signals.check()
                inputs = [{**before, TRIES: old[FAILURE][TRIES]} for old, before in chunk if must_redo(old, before)]
                made = {row[KEY]: row for row in run_in_order(step.name, step.work, inputs)} if inputs else {}
                for old, before in chunk:
                    row = made.get(old[KEY], before if is_failed(old) and is_failed(before) else old)
                    failures.update(failure_names(row))
                    yield row

        with self._opened(step) as engine:
            total, name = record.rows, f"{step.name}, failed rows"
            write_jsonl(path, tqdm(repaired(), total=total, desc=name, unit="row"))
            record.engine, record.size = engine, path.stat().st_size
            record.failures = dict(sorted(failures.items()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
