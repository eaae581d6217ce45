"""Runs named steps over JSON lines so that a kill at any moment costs no reply, and a change only what depends on it.

Each step writes `steps/NN_name.jsonl` while it works, a row for each row before it and in their order. What is there
is never made again: a resumed chain goes on behind the last whole line. Rows are joined by their keys, never by their
places: a row that fails leaves a hole in its own place (construction/chain/chain_rows.py), which later steps pass on.

    chain = Chain(folder, "spontaneous", [
        Source(name="inputs", read=rows, settings={...}),
        Step(name="sample-small", after=("inputs",), branch="small", work=Ask(...), settings={...}),
        Step(name="sample-large", after=("inputs",), branch="large", work=Ask(...), settings={...}),
        Step(name="annotate", after=("sample-small", "sample-large"), work=Ask(...), settings={...}),
    ])
    chain.run()

A step behind several branches reads their rows side by side: those of one key follow each other, as `key@branch`.
Memory holds one portion of rows, however many there are.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from construction.chain.chain_rows import AT, HOLE, KEY, TRIES, Row, hole_name, is_hole, tries_of
from construction.chain.manifest import DONE, RUNNING, Manifest, StepRecord, sign
from construction.chain.steps import PORTION, AnyStep, Each, Source, Step, Work, batched, in_order
from faithkit import signals
from faithkit.files.jsonl import JsonlAppender, read_jsonl, write_jsonl

__all__ = ["PORTION", "AnyStep", "Chain", "Each", "Source", "Step", "Work"]
FOLDER = "steps"
log = logging.getLogger("faithkit")


class Chain:
    """Steps in a run's folder.

    Args:
        name: Of the pipeline, in the manifest.
        versions: Of the code and its libraries, for the manifest.

    Raises:
        UserError: The folder holds another chain's manifest, or one that cannot be read.
    """

    def __init__(self, folder: Path, name: str, steps: Sequence[AnyStep], versions: Mapping[str, Any] | None = None):
        self.folder, self.steps, self.versions = folder, {step.name: step for step in steps}, versions or {}
        assert len(self.steps) == len(steps), "two steps have one name"
        self.numbers = {name: number for number, name in enumerate(self.steps, start=1)}
        self.signatures: dict[str, str] = {}
        for step in steps:  # each behind those that it reads
            before = [self.signatures[one] for one in step.after]
            self.signatures[step.name] = sign(step.name, step.settings, step.version, before)
        self.manifest = Manifest(folder, name)

    def path(self, name: str) -> Path:
        """The file of a step's rows."""
        return self.folder / FOLDER / f"{self.numbers[name]:02d}_{name}.jsonl"

    def rows(self, name: str) -> Iterator[Row]:
        """Reads the rows of a step, holes among them."""
        return read_jsonl(self.path(name))

    def run(self, *, retry_holes: bool = False, progress: bool = True) -> None:
        """Makes all rows that are missing.

        Args:
            retry_holes: Makes rows again that failed, and only those; what depends on them follows.
        """
        if self.manifest.is_older:
            log.warning("the manifest is of an older version: all steps are made again; replies come from the cache")
        for name in self.manifest.steps.keys() - self.steps.keys():  # a model that is no longer asked
            self._forget(self.manifest.steps.pop(name).file)
        for step in self.steps.values():
            record = self._settled(step)
            if record.state == RUNNING:
                self._work(step, record, progress)
            if isinstance(step, Step) and record.holes and (retry_holes or record.after != self._revisions(step)):
                self._repair(step, record, retry_holes, progress)
            log.info("%s: %s", step.name, _told(record))

    def _settled(self, step: AnyStep) -> StepRecord:
        """Gives the record of a step whose rows still hold; begins a step anew where they do not."""
        known, path = self.manifest.steps.get(step.name), self.path(step.name)
        if known is not None and (known.signature, known.made_of, known.file) == self._identity(step):
            if known.state == RUNNING or (path.exists() and path.stat().st_size == known.size):
                return known
            log.warning("%s: its rows were changed since they were made: the step is made again", step.name)
        return self._begin(step)

    def _identity(self, step: AnyStep) -> tuple[str, dict[str, str], str]:
        """Gives what a step's rows are known by: its signature, the rows that they are made of, and their file."""
        made_of = {name: self.manifest.steps[name].rows_id for name in step.after}
        return self.signatures[step.name], made_of, str(self.path(step.name).relative_to(self.folder))

    def _begin(self, step: AnyStep) -> StepRecord:
        signature, made_of, file = self._identity(step)
        known = self.manifest.steps.get(step.name)
        for old in {file, known.file if known else file}:  # before the manifest speaks of new rows
            self._forget(old)
        record = StepRecord(
            name=step.name,
            file=file,
            signature=signature,
            rows_id=secrets.token_hex(4),
            made_of=made_of,
            settings={**step.settings, "version": step.version},
            after=self._revisions(step),
            began=_now(),
            versions=self.versions,
        )
        self.manifest.steps[step.name] = record
        self.manifest.write()
        return record

    def _forget(self, file: str) -> None:
        (self.folder / FOLDER / Path(file).name).unlink(missing_ok=True)  # whatever folder a manifest names

    def _revisions(self, step: AnyStep) -> dict[str, int]:
        return {name: self.manifest.steps[name].revision for name in step.after}

    def _inputs(self, step: Step) -> Iterator[Row]:
        """Reads the rows before a step, those of several branches side by side."""
        if len(step.after) == 1:
            return self.rows(step.after[0])
        return self._joined(step)

    def _joined(self, step: Step) -> Iterator[Row]:
        names = {one: self.steps[one].branch or one for one in step.after}
        for rows in zip(*map(self.rows, names), strict=True):
            assert len({row[KEY] for row in rows}) == 1, "branches have the same keys in the same order"
            for row, branch in zip(rows, names.values(), strict=True):
                yield {**row, KEY: f"{row[KEY]}{AT}{branch}"}

    def _expected(self, step: AnyStep) -> int | None:
        return sum(self.manifest.steps[name].rows for name in step.after) or None

    def _work(self, step: AnyStep, record: StepRecord, progress: bool) -> None:
        """Makes the rows behind those that are there already."""
        began, path = time.monotonic(), self.path(step.name)
        engine = step.work.open() if isinstance(step, Step) else ""
        try:
            if record.engine and record.engine != engine and path.exists():
                log.warning("%s: its model is another one by now: the step is made again", step.name)
                record = self._begin(step)
            record.engine = engine
            self.manifest.write()
            with JsonlAppender(path) as file:
                have, holes = self._have(step, path)
                bar = tqdm(total=self._expected(step), initial=have, desc=step.name, unit="row", disable=not progress)
                with bar:
                    for portion in self._portions(step, have, bar.update):
                        for row in portion:
                            file.append(row)
                            holes.update([hole_name(row)] if is_hole(row) else [])
                            have += 1
                        file.sync()
            record.rows, record.holes, record.size = have, dict(sorted(holes.items())), path.stat().st_size
            record.state = DONE
        finally:
            record.said = (step.work.close() if isinstance(step, Step) else "") or record.said
            record.seconds, record.ended = round(record.seconds + time.monotonic() - began, 3), _now()
            self.manifest.write()

    def _have(self, step: AnyStep, path: Path) -> tuple[int, Counter[str]]:
        """Counts the rows of an interrupted step, and its holes."""
        holes: Counter[str] = Counter()
        number = 0
        for number, row in enumerate(read_jsonl(path), start=1):  # noqa: B007 - the last number is the count
            if is_hole(row):
                holes[hole_name(row)] += 1
        return number, holes

    def _portions(self, step: AnyStep, have: int, advance: Callable[[int], object]) -> Iterator[Iterable[Row]]:
        """Gives the missing rows of a step by portions, each row as soon as it and those before it are there.

        Args:
            advance: Is told of rows that were made, before their turn to be written has come.
        """
        if isinstance(step, Source):
            for rows in batched(islice(iter(step.read()), have, None), PORTION):
                signals.check()
                yield rows
                advance(len(rows))
            return
        for rows in batched(islice(self._inputs(step), have, None), step.portion):
            signals.check()
            yield in_order(step.name, step.work, rows, advance)

    def _repair(self, step: Step, record: StepRecord, retry: bool, progress: bool) -> None:
        """Makes holes again: those that are filled before this step, and its own where `retry` says so.

        The file is replaced as a whole. A kill before leaves it as it was; the replies that came are in the cache.
        """

        def redo(old: Row, before: Row) -> bool:
            return is_hole(old) and not is_hole(before) and (retry or old[HOLE]["step"] != step.name)

        path, holes, changed = self.path(step.name), Counter[str](), 0
        if not any(redo(old, before) for old, before in zip(self.rows(step.name), self._inputs(step), strict=True)):
            record.after = self._revisions(step)
            self.manifest.write()
            return
        began = time.monotonic()
        record.engine = step.work.open()

        def repaired() -> Iterator[Row]:
            nonlocal changed
            both = zip(self.rows(step.name), self._inputs(step), strict=True)
            for portion in batched(both, step.portion):
                signals.check()
                asked = [{**before, TRIES: tries_of(old)} for old, before in portion if redo(old, before)]
                made = {row[KEY]: row for row in in_order(step.name, step.work, asked)} if asked else {}
                for old, before in portion:
                    row = made.get(old[KEY], before if is_hole(old) and is_hole(before) else old)
                    changed += is_hole(old) and not is_hole(row)
                    holes.update([hole_name(row)] if is_hole(row) else [])
                    yield row

        try:
            rows = tqdm(repaired(), total=record.rows, desc=f"{step.name}, holes", unit="row", disable=not progress)
            write_jsonl(path, rows)
        finally:
            record.said = step.work.close() or record.said
        record.holes, record.size = dict(sorted(holes.items())), path.stat().st_size
        record.revision, record.after = record.revision + bool(changed), self._revisions(step)
        record.seconds, record.ended = round(record.seconds + time.monotonic() - began, 3), _now()
        self.manifest.write()


def _told(record: StepRecord) -> str:
    holes = ", ".join(f"{number:,} {why}" for why, number in record.holes.items())
    said = f"; {record.said}" if record.said else ""
    return f"{record.rows:,} rows{f', holes: {holes}' if holes else ''} in {record.seconds:.1f} s{said}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
