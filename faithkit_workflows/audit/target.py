"""The audited detector: a checkpoint, a function, or a server, asked within limits of time, its failures counted.

A function is named as `module:function`. It gets a list of rows, each a dict with `context`, `passages`, `question`,
`history` (the turns before the answer, dicts with `speaker` and `text`) and `answer`. It returns one value for each:
P(hallucinated), a label, or a dict with `probability`, `label` and `spans`.
"""

import json
import math
import numbers
import queue
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from tqdm.auto import tqdm

from data_modules.datasets.pair_columns import WORDS
from faithkit import signals
from faithkit.detector import detector_kinds
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import JsonlAppender, read_jsonl
from faithkit.inference.openai_server import NO_KEY, ServerOptions, read_models, read_server
from faithkit.packages import load_object, object_name
from faithkit.provenance.used_model import hash_texts
from faithkit.records import (
    FAITHFUL,
    HALLUCINATED,
    UNPARSED,
    UNTYPED,
    Example,
    Prediction,
    Span,
    join_passages,
    number_passages,
)

PASSAGES = "passages"  # in an example's `meta`
URL = re.compile(r"https?://\S+")
SPANS_PATH, MODELS_PATH = "/v1/lettucedetect/spans", "/models"
FUNCTION_THRESHOLD = 0.5
MAX_REPLY_BYTES = 2**24
HINT = "name a checkpoint, default, module:function, or http://HOST:PORT"
MAX_FAILURES, MAX_LATER_FAILURES = 5, 30  # in a row, before the first verdict and later
NOT_ASKED = "not asked: "
TOO_LONG = "over row_seconds"
KEY = "row"  # the hash of a row's id and texts, in the file of answers


def passages_of(example: Example) -> tuple[str, ...]:
    """Returns the passages that make up the knowledge."""
    found: tuple[str, ...] = example.meta[PASSAGES]
    return found


def question_of(example: Example) -> str:
    """Returns the text of the last turn before the response; empty if there is none."""
    return example.history[-1].text if example.history else ""


@dataclass(frozen=True)
class DetectorTarget:
    """A detector of faithkit.

    Args:
        takes_batches: Rows are judged together; a server gets a request for each.
    """

    name: str
    detector: Any
    join: Callable[[Sequence[str]], str] = join_passages
    takes_batches: bool = True

    def predict(self, rows: Sequence[Example]) -> list[Prediction | str]:
        """Judges rows; of a row that cannot be judged it returns the reason."""
        joined = [replace(row, knowledge=self.join(passages_of(row))) for row in rows]
        found = list(self.detector.predict_examples(joined))
        if [one.id for one in found] != [row.id for row in rows]:
            return ["answers of other rows, or not of all"] * len(rows)
        return [_usable(one) for one in found]


def _usable(prediction: Prediction) -> Prediction | str:
    if prediction.failed:
        return f"request failed: {shorten(prediction.text)[1:-1]}"
    return "reply without a verdict" if prediction.label in (None, UNPARSED) else prediction


@dataclass(frozen=True)
class FunctionTarget:
    """A function of Python; numbers become labels at the threshold."""

    name: str
    function: Callable[[list[dict[str, Any]]], Any]
    threshold: float = FUNCTION_THRESHOLD
    takes_batches: bool = True

    def predict(self, rows: Sequence[Example]) -> list[Prediction | str]:
        asked = [
            {
                "context": "\n\n".join(passages_of(row)),
                "passages": list(passages_of(row)),
                "question": question_of(row),
                "history": [asdict(turn) for turn in row.history],
                "answer": row.response,
            }
            for row in rows
        ]
        values = self.function(asked)
        try:
            listed = None if isinstance(values, str | bytes | Mapping) else list(values)
        except TypeError:
            listed = None
        if listed is None:
            return [f"returned {type(values).__name__}, not a list"] * len(rows)
        if len(listed) != len(rows):
            return ["wrong length of the returned list"] * len(rows)
        return [read_verdict(value, row, self.threshold) for value, row in zip(listed, rows, strict=True)]


def read_verdict(value: Any, row: Example, threshold: float) -> Prediction | str:
    """Reads what a function returned for a row; a text is the reason why it is no verdict."""
    if isinstance(value, Prediction):
        return _usable(replace(value, id=row.id))
    if hasattr(value, "item") and not isinstance(value, Mapping):  # a number of numpy or torch
        try:
            value = value.item()
        except (ValueError, RuntimeError):
            return f"returned {type(value).__name__}, not a number"
    if isinstance(value, bool):
        return Prediction(id=row.id, label=HALLUCINATED if value else FAITHFUL, score=float(value))
    if isinstance(value, str):
        label = WORDS.get(value.strip().lower().replace("_", " "))
        return Prediction(id=row.id, label=label) if label else f"unknown label {shorten(value, 30)}"
    if isinstance(value, numbers.Real):
        score = float(value)
        if not math.isfinite(score) or not 0 <= score <= 1:
            return "NaN instead of a probability" if math.isnan(score) else "a number outside of 0 to 1"
        return Prediction(id=row.id, label=HALLUCINATED if score >= threshold else FAITHFUL, score=score)
    if not isinstance(value, Mapping):
        return f"returned {type(value).__name__}, not a verdict"
    given = [value[key] for key in ("probability", "score", "label") if value.get(key) is not None]
    if not given:
        return "a dict without probability and label"
    read = [read_verdict(one, row, threshold) for one in given]
    if problem := next((one for one in read if isinstance(one, str)), None):
        return problem
    first, last = read[0], read[-1]
    assert isinstance(first, Prediction) and isinstance(last, Prediction)
    spans = _read_spans(value.get("spans") or (), row.response)
    return spans if isinstance(spans, str) else Prediction(id=row.id, label=last.label, score=first.score, spans=spans)


def _read_spans(spans: Any, response: str) -> tuple[Span, ...] | str:
    try:
        found = tuple(
            Span(start=int(one["start"]), end=int(one["end"]), label=str(one.get("label") or UNTYPED)) for one in spans
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        return "spans without start and end"
    return "spans beyond the answer" if any(span.end > len(response) for span in found) else found


@dataclass(frozen=True)
class SpanServer:
    """A server with the protocol of LettuceDetect: contexts, question and answer in, unsupported spans out.

    It returns no probability of the whole answer: the score is that of the most probable span, 0 without any.
    """

    name: str
    url: str
    seconds: float
    takes_batches: bool = False

    def predict(self, rows: Sequence[Example]) -> list[Prediction | str]:
        with ThreadPoolExecutor(8) as pool:  # requests that a server gets at a time
            return list(pool.map(self._predict, rows))

    def _predict(self, row: Example) -> Prediction | str:
        body = {"contexts": list(passages_of(row)), "question": question_of(row), "answer": row.response}
        try:
            found = json.loads(_request(self.url, self.seconds, body))
        except (OSError, HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {shorten(str(error))[1:-1]}"
        predictions = found.get("predictions") if isinstance(found, dict) else None
        spans = (
            "no list of predictions" if not isinstance(predictions, list) else _read_spans(predictions, row.response)
        )
        if isinstance(spans, str):
            return spans
        try:
            scores = [float(one["hallucination_score"]) for one in predictions or ()]
            label = HALLUCINATED if spans else FAITHFUL
            return Prediction(id=row.id, label=label, score=max(scores, default=0.0), spans=spans)
        except (LookupError, TypeError, ValueError):
            return "spans without a hallucination_score from 0 to 1"


Target = DetectorTarget | FunctionTarget | SpanServer  # what is audited


def _request(url: str, seconds: float, body: Mapping[str, Any] | None = None, key: str = "") -> bytes:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        content: bytes = answer.read(MAX_REPLY_BYTES + 1)
    if len(content) > MAX_REPLY_BYTES:
        raise ValueError(f"the reply has more than {MAX_REPLY_BYTES:,} bytes")
    return content


def _open_server(config: Mapping[str, Any]) -> Target:
    """Finds out which protocol a server speaks.

    Raises:
        UserError: No server answers, it speaks neither, or it has several models and none is named.
    """
    seconds = config["row_seconds"]
    address, model = urldefrag(config["target"])
    try:
        server = read_server("any", address, config["api_key_variable"])
    except UserError as error:
        raise UserError(error.problem.replace("engine.base_url", "target"), hint=HINT) from error
    url, key = server.url, "" if server.key == NO_KEY else server.key
    if url.endswith("/spans"):
        return SpanServer(url, url, seconds)
    reasons = []
    for base in dict.fromkeys((url, f"{url.removesuffix('/v1')}/v1")):
        try:
            content = _request(base + MODELS_PATH, seconds, key=key)
        except (OSError, HTTPException, ValueError) as error:
            reasons.append(error)
            continue
        if models := read_models(content)[0]:
            from faithkit.inference.openai_engine import OpenAiEngine
            from judge.judge import Judge

            chosen = model or config["server_model"]
            if chosen is None and len(models) > 1:
                problem = f"the server has several models: {', '.join(models[:5])}"
                raise UserError(problem, place=base, hint=f"server_model={models[0]}, or {base}#{models[0]}")
            chosen, variable = chosen or models[0], config["api_key_variable"]
            options = ServerOptions(base_url=base, api_key_variable=variable, max_retries=1, timeout_seconds=seconds)
            return DetectorTarget(f"{chosen} at {base}", Judge(OpenAiEngine(chosen, options)), takes_batches=False)
    spans = f"{url.removesuffix('/v1')}{SPANS_PATH}"
    try:
        _request(spans, seconds, {"contexts": ["A cat."], "question": "", "answer": "A cat."})
        return SpanServer(url, spans, seconds)
    except (OSError, HTTPException, ValueError) as error:
        reasons.append(error)
    if all(isinstance(reason, urllib.error.HTTPError) for reason in reasons):
        problem = f"the server speaks neither protocol: {MODELS_PATH} and {SPANS_PATH} gave {reasons[-1]}"
        raise UserError(problem, place=url, hint="name the address that its clients use, such as http://HOST:8000/v1")
    raise UserError(f"no server answers: {reasons[-1]}", place=url, hint="start it, or correct host and port")


def open_target(config: Mapping[str, Any]) -> Target:
    """Opens what `target` names.

    Raises:
        UserError: There is no such detector, function or server.
    """
    name = config["target"]
    if URL.fullmatch(name):
        return _open_server(config)
    if (here := str(Path.cwd())) not in sys.path:  # where a user's module usually is
        sys.path.append(here)
    if (found := object_name(name)) == name and callable(function := load_object(name)):
        if not hasattr(function, "predict_examples"):
            threshold = config["threshold"]
            return FunctionTarget(name, function, FUNCTION_THRESHOLD if threshold is None else threshold)
    elif (
        found is None and re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", name) and name.partition(":")[0] not in detector_kinds()
    ):
        raise UserError(f"no module {name.partition(':')[0]} can be imported", hint=HINT)
    from faithkit_workflows.detectors.loading import kind_of, load_checkpoint, with_threshold

    loaded = with_threshold(load_checkpoint({**config, "checkpoint": name}), config["threshold"], name)
    join = number_passages if kind_of(name).numbers_passages else join_passages
    return DetectorTarget(name, loaded.detector, join)


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
        self._thread.join(10.0)

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
