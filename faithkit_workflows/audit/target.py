"""The audited detector: a checkpoint, a function, or a server, asked row by row with its failures counted.

A function is named as `module:function`. It gets a list of rows, each a dict with `context`, `passages`, `question`,
`history` (the turns before the answer, dicts with `speaker` and `text`) and `answer`. It returns one value for each:
P(hallucinated), a label, or a dict with `probability`, `label` and `spans`.
"""

import json
import math
import numbers
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from data_modules.datasets.pair_labels import WORDS
from faithkit.detector import detector_kinds
from faithkit.errors import UserError, shorten
from faithkit.inference.openai_server import NO_KEY, ServerOptions, read_models, read_server
from faithkit.packages import load_object, object_name
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
CONCURRENCY = 8  # requests that a server gets at a time
MAX_REPLY_BYTES = 2**24
HINT = "name a checkpoint, default, module:function, or http://HOST:PORT"


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
        with ThreadPoolExecutor(CONCURRENCY) as pool:
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
