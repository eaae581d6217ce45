"""Asks the audited detector within limits of time, keeps its answers in the run's folder, and counts its failures."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import JsonlAppender, read_jsonl
from faithkit.provenance.used_model import hash_texts
from faithkit.records import Example, Prediction
from faithkit_workflows.audit.target import Target

MAX_FAILURES, MAX_LATER_FAILURES = 5, 30  # in a row, before the first verdict and later
NOT_ASKED = "not asked: "
TOO_LONG = "over row_seconds"
CLOSING_SECONDS = 10.0
KEY = "row"  # the hash of a row's id and texts, in the file of answers


class Asker:
    """Asks a target; an answer in the run's folder is not asked for again.

    A thread asks, so that a call that never returns can be given up; it goes on in the background until the end.

    Args:
        row_seconds: The time of one row; a batch has as many times more.
        max_seconds: The time of all rows together.
        batch_size: Rows at a time, where the detector is fast enough.

    Attributes:
        problems: How many rows had no verdict, by reason.
        seconds: Of each row that was answered in this process.
    """

    def __init__(self, target: Target, path: Path, *, row_seconds: float, max_seconds: float, batch_size: int):
        self.target, self.row_seconds, self.batch_size = target, row_seconds, batch_size
        self.problems: Counter[str] = Counter()
        self.seconds: list[float] = []
        rows = read_jsonl(path) if path.exists() else ()
        self._known = {row.pop(KEY, ""): Prediction.from_dict(row) for row in rows}
        self._file = JsonlAppender(path)
        self._end = self._part_end = time.monotonic() + max_seconds
        self._failures = self._late = 0  # in a row
        self._worker = _Worker(target)

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """Limits what is asked inside to a share of the time that is left."""
        self._part_end = time.monotonic() + share * max(0.0, self._end - time.monotonic())
        yield
        self._part_end = self._end

    def ask(self, examples: Sequence[Example], part: str, *, batch_size: int | None = None) -> dict[str, Prediction]:
        """Asks for each row; rows without a verdict are missing in what it returns, and counted.

        Args:
            part: Names the progress bar.
            batch_size: Exactly so many rows at a time; None chooses.
        """
        found: dict[str, Prediction] = {}
        with tqdm(total=len(examples), desc=part, unit="row") as bar:
            place = 0
            while place < len(examples):
                signals.check()
                size = batch_size or 1  # the first row measures the time
                if not batch_size and self.seconds:
                    mean = sum(self.seconds) / len(self.seconds)
                    size = max(1, min(self.batch_size, int(self.row_seconds / max(mean, 1e-6))))
                chunk = examples[place : place + size]
                found |= self._ask_chunk(chunk)
                place += len(chunk)
                bar.update(len(chunk))
        return found

    def close(self) -> None:
        """Closes the file of answers, and waits for the call that an interruption has left."""
        self._file.close()
        self._worker.close()

    def _ask_chunk(self, rows: Sequence[Example]) -> dict[str, Prediction]:
        keys = [f"{hash_texts(row):x}" for row in rows]  # after a change of a text a resumed run asks again
        if all(key in self._known for key in keys):
            return {row.id: self._known[key] for row, key in zip(rows, keys, strict=True)}
        most = MAX_LATER_FAILURES if self._known else MAX_FAILURES
        is_stopped = self._failures >= most or self._late >= MAX_FAILURES
        began = time.monotonic()
        if is_stopped or began > self._part_end:
            reason = "too many failures in a row" if is_stopped else "no time left"
            self.problems[f"{NOT_ASKED}{reason}"] += len(rows)
            return {}
        answers = self._worker.predict(rows, self.row_seconds * len(rows))
        if isinstance(answers, str):
            if answers == TOO_LONG:
                self._worker = _Worker(self.target)
            if len(rows) > 1:  # one of them may be the reason
                return {key: one for row in rows for key, one in self._ask_chunk([row]).items()}
            answers = [answers]
        self.seconds += [(time.monotonic() - began) / len(rows)] * len(rows)
        found = {}
        for row, key, answer in zip(rows, keys, answers, strict=True):
            if isinstance(answer, str):
                self.problems[answer] += 1
                self._failures += 1
                self._late += answer == TOO_LONG
                continue
            self._failures = self._late = 0
            found[row.id] = self._known[key] = answer
            self._file.append({KEY: key, **answer.to_dict()})
        return found


class _Worker:
    """A thread that calls the target; a new one takes its place where a call does not return."""

    def __init__(self, target: Target):
        self._target = target
        self._asked: queue.Queue[Sequence[Example] | None] = queue.Queue()
        self._answered: queue.Queue[list[Prediction | str] | str] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def predict(self, rows: Sequence[Example], seconds: float) -> list[Prediction | str] | str:
        """Returns the answers, or the reason why there are none."""
        self._asked.put(rows)
        try:
            return self._answered.get(timeout=seconds)
        except queue.Empty:
            return TOO_LONG

    def close(self) -> None:
        """Ends the thread: Python would abort if it ended while torch computes there."""
        self._asked.put(None)
        self._thread.join(CLOSING_SECONDS)

    def _work(self) -> None:
        while (rows := self._asked.get()) is not None:
            answers: list[Prediction | str] | str
            try:
                answers = self._target.predict(rows)
            except UserError as error:
                answers = shorten(error.problem, 120)[1:-1]
            except (Exception, SystemExit) as error:  # a function of the user may raise anything
                answers = f"{type(error).__name__}: {shorten(str(error), 100)[1:-1]}"
            self._answered.put(answers)
