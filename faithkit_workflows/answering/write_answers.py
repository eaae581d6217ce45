"""Writes answers to a file, so that an interruption loses at most one chunk and does not change the file.

Examples are answered in chunks, in their order. A resumed run drops an incomplete chunk and continues after the last
complete one, so it answers the same chunks and produces the same file. `NAME.checksums` has a checksum for each
complete chunk; what does not fit it, such as an edited line or a file of another run, is answered again. A record of
the models that made the predictions is written next to them.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from faithkit import signals
from faithkit.detector import Detector
from faithkit.errors import UserError, shorten
from faithkit.fast import return_freed_memory
from faithkit.files.atomic import disk_errors, dumps
from faithkit.files.jsonl import JsonlAppender, parse_lines, parse_prediction, write_jsonl
from faithkit.files.open_run import fixed_settings
from faithkit.files.run_folder import RunFolder
from faithkit.languages import ANY, find_other_language
from faithkit.pages.page_tables import escape_terminal
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.used_model import (
    HASH_BYTES,
    TestRows,
    UsedModel,
    describe_model,
    hash_texts,
    read_origin,
    write_origin,
)
from faithkit.records import CALLS, Example, Prediction
from faithkit.reports.report import Provenance
from faithkit_workflows.answering.strategies import Answerer
from faithkit_workflows.detectors.actions import add_actions
from faithkit_workflows.detectors.loading import LoadedDetector

CHANGED_DATA_HINT = "the data have changed since: start a new run in another run_dir"
CHECKSUMS = ".checksums"  # next to NAME.jsonl
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class DetectorAnswerer:
    """Lets a detector take the place of an answerer: it judges the responses of the examples.

    In conversations with tools, rules mark the actions that no call does (`faithkit_workflows.detectors.actions`).

    Args:
        languages: Texts in others have their `language` in the prediction; by default none has.
    """

    detector: Detector
    languages: tuple[str, ...] = (ANY,)

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object] | None = None) -> list[Prediction]:
        """Judges the examples."""
        predictions = []
        for prediction, example in zip(self.detector.predict_examples(examples), examples, strict=True):
            calls = example.meta.get(CALLS)
            if isinstance(calls, str):
                prediction = add_actions(prediction, example.response, calls)
            if language := find_other_language(example.response, example.knowledge, self.languages):
                prediction = replace(prediction, language=language)
            predictions.append(prediction)
            if advance:
                advance(1)
        return predictions


def write_answers(
    path: Path,
    examples: Sequence[Example],
    answerer: Answerer,
    *,
    chunk_size: int,
    line_of: Callable[[Prediction, Example], dict[str, Any]] | None = None,
    made_by: str = "",
) -> list[Prediction]:
    """Answers the examples that the file lacks, and returns the answers to all of them.

    Args:
        path: A predictions file, new or from an interrupted run.
        chunk_size: Number of examples that are answered together.
        line_of: Makes the line of the file for an answer and its example; None writes the answer alone.
        made_by: What the answers depend on but their examples (`describe_run`); lines made by another are not kept.
    """
    options: dict[str, Any] = {"chunk_size": chunk_size, "line_of": line_of, "made_by": made_by}
    return list(stream_answers(path, examples, len(examples), answerer, **options))


def describe_run(run: RunFolder, models: Sequence[UsedModel]) -> str:
    """Describes what the answers of a run depend on: the settings that resuming it cannot change, and its models."""
    return dumps([fixed_settings(run), [model.to_dict() for model in models]])


def stream_answers(
    path: Path,
    examples: Iterable[Example],
    total: int,
    answerer: Answerer,
    *,
    chunk_size: int,
    line_of: Callable[[Prediction, Example], dict[str, Any]] | None = None,
    made_by: str = "",
) -> Iterator[Prediction]:
    """Does the same as `write_answers` for any number of examples, with one chunk in memory.

    Args:
        total: The number of examples.

    Raises:
        UserError: The file answers other examples.
    """
    if chunk_size < 1:
        raise UserError(f"save_every_num_rows is {chunk_size}", hint="use 1 or more")
    # The hash goes on from chunk to chunk, so that no chunk can be removed, repeated or moved.
    remaining, hashed = iter(examples), hashlib.sha256(made_by.encode(errors="surrogatepass"))
    checksums, kept = path.with_suffix(CHECKSUMS), list[dict[str, Any]]()
    num_kept = end = 0
    is_changed = False
    if is_resumed := path.exists():
        with JsonlAppender(path):
            pass  # opening it drops an incomplete last line
    with path.open("rb") if is_resumed else io.BytesIO() as file:
        for stored in _read_checksums(checksums):
            chunk = list(islice(remaining, stored["rows"]))
            lines = [file.readline() for _ in chunk]
            if len(chunk) < stored["rows"] and (num_more := sum(1 for _ in file)):
                answers = num_kept + len(lines) + num_more
                raise UserError(f"{answers} answers to {total} examples", place=str(path), hint=CHANGED_DATA_HINT)
            _add_rows(found := hashed.copy(), chunk, lines)
            if found.hexdigest() != stored["sha256"]:
                _check_same_examples(path, num_kept, chunk, lines)
                is_changed, remaining = True, chain(chunk, remaining)
                break
            for number, line in enumerate(lines, num_kept + 1):
                yield parse_prediction(json.loads(line), f"{path}, line {number}")
            hashed, end = found, end + sum(map(len, lines))
            num_kept += len(chunk)
            kept.append(stored)
        file.seek(end)
        num_dropped = sum(1 for _ in file)
    if is_resumed:
        if num_dropped:
            reason = "do not fit their checksum: they, the rows or the model have changed since"
            reason = reason if is_changed else "have no checksum yet, as after an interruption"
            shown = f"lines {num_kept + 1:,} to {num_kept + num_dropped:,}"
            log.warning("%s: %s %s; these rows are answered again", escape_terminal(str(path)), shown, reason)
        write_jsonl(checksums, kept)
        with disk_errors(path):
            os.truncate(path, end)
    with (
        JsonlAppender(path) as answered,
        JsonlAppender(checksums) as checked,
        tqdm(total=total, initial=num_kept, desc=path.stem, unit="row", mininterval=0.5, disable=None) as bar,
    ):
        for chunk, predictions in answer_in_chunks(remaining, answerer, chunk_size=chunk_size, advance=bar.update):
            rows = zip(predictions, chunk, strict=True)
            lines = [answered.append(line_of(*row) if line_of else row[0].to_dict()) for row in rows]
            answered.sync()
            _add_rows(hashed, chunk, lines)
            checked.append({"rows": len(chunk), "sha256": hashed.hexdigest()})
            checked.sync()
            yield from predictions


def _add_rows(hashed: Any, chunk: Sequence[Example], lines: Iterable[bytes]) -> None:
    """Adds the texts of examples and their lines to a hash."""
    for example in chunk:
        hashed.update(hash_texts(example).to_bytes(HASH_BYTES))
    for line in lines:
        hashed.update(line)


def _read_checksums(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the number of rows and the checksum of each chunk, up to a line that has none."""
    if not path.exists():
        return
    try:
        for _, _, value in parse_lines(path):
            if not isinstance(value, dict) or type(value.get("rows")) is not int or value["rows"] < 1:
                return
            yield {"rows": value["rows"], "sha256": value.get("sha256")}
    except UnicodeDecodeError:
        return


def _check_same_examples(path: Path, num_before: int, chunk: Sequence[Example], lines: Iterable[bytes]) -> None:
    """Checks that the lines of a changed chunk answer these examples, as far as they can be read.

    Raises:
        UserError: A line answers another example: the data have changed.
    """
    for number, (example, line) in enumerate(zip(chunk, lines, strict=True), num_before + 1):
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
            written = parse_prediction(row, place) if isinstance(row, dict) else None
        except (ValueError, RecursionError, UserError):
            continue
        if written and (written.id != example.id or row.get("response", example.response) != example.response):
            changed = " with another response" if written.id == example.id else ""
            problem = f"the file answers {shorten(written.id)}, and the data have {shorten(example.id)}{changed}"
            raise UserError(problem, place=place, hint=CHANGED_DATA_HINT)


def answer_in_chunks(
    examples: Iterable[Example],
    answerer: Answerer,
    *,
    chunk_size: int,
    advance: Callable[[int], object] | None = None,
) -> Iterator[tuple[list[Example], Sequence[Prediction]]]:
    """Yields each chunk of the examples with its answers; the chunks depend on the examples alone.

    Args:
        advance: Is called with the number of examples that were answered since.
    """
    return_freed_memory()
    remaining = iter(examples)
    for chunk in iter(lambda: list(islice(remaining, chunk_size)), []):
        signals.check()
        yield chunk, answerer.answer(chunk, advance)


def write_with_origin(
    run: RunFolder,
    config: Mapping[str, Any],
    name: str,
    examples: Sequence[Example],
    answerer: Answerer,
    models: Sequence[UsedModel],
    *,
    dataset: str | None = None,
) -> dict[str, Prediction]:
    """Writes answers to a run's predictions, records which models answered which rows, and returns them by id.

    Args:
        config: A script's settings, with `save_every_num_rows` and `save_texts`.
        name: The name of the file.
        models: The models that took part in the answers.
        dataset: The dataset of the rows, if it is not the file's name.
    """
    path = run.predictions / f"{name}.jsonl"
    line = partial(to_line, texts=config["save_texts"], generated=not isinstance(answerer, DetectorAnswerer))
    options: dict[str, Any] = {"chunk_size": config["save_every_num_rows"], "made_by": describe_run(run, models)}
    answers = write_answers(path, examples, answerer, line_of=line, **options)
    write_origin(path, dataset or name, examples, models)
    return {answer.id: answer for answer in answers}


def write_given(
    path: Path,
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    texts: bool = True,
    generated: bool = False,
) -> None:
    """Writes given predictions together with their examples, in the format of a run's predictions.

    Args:
        generated: The predictions are answers, and the responses of the examples are references.
    """
    lines = (to_line(predictions[one.id], one, texts=texts, generated=generated) for one in examples)
    write_jsonl(path, lines)


def judge_rows(
    run: RunFolder, config: Mapping[str, Any], name: str, rows: Sequence[Example], loaded: LoadedDetector
) -> list[Prediction]:
    """Judges rows that something is fitted on or chosen by, and keeps the verdicts alone, without the rows."""
    path, made_by = run.predictions / f"{name}.jsonl", describe_run(run, loaded.models)
    answerer = DetectorAnswerer(loaded.detector)
    return write_answers(path, rows, answerer, chunk_size=config["save_every_num_rows"], made_by=made_by)


def predict_and_write(
    run: RunFolder, config: Mapping[str, Any], name: str, examples: Sequence[Example], loaded: LoadedDetector
) -> tuple[dict[str, Prediction], Provenance]:
    """Predicts examples with a detector and writes the predictions; returns them by id, and their provenance."""
    predictions = write_with_origin(run, config, name, examples, DetectorAnswerer(loaded.detector), loaded.models)
    loaded.log_usage()
    return predictions, Provenance.of(name, examples, loaded.models)


def read_provenance(
    predictions: str,
    name: str,
    examples: Sequence[Example],
    *,
    checkpoint: str | None,
    others: Sequence[UsedModel] = (),
) -> Provenance:
    """Reads the provenance of given predictions from the record next to the file.

    Args:
        checkpoint: The model that the command names for them; used where the record is missing.
        others: Further models that take part in the metrics.
    """
    origin, notes = read_origin(Path(predictions).expanduser()), []
    models = list(origin.models)
    if origin.rows is None:
        models = [describe_model(checkpoint)] if checkpoint else []
        source = "their model is taken from checkpoint=" if checkpoint else "their model is unknown"
        notes.append(f"from: {source}, since {origin.reason}")
    elif origin.rows.rows != (here := TestRows.of(name, examples)).rows:
        notes.append(
            f"from: these predictions were made on other rows: {escape_terminal(str(origin.rows))}, and not {here}"
        )
    if not models:
        record = f"{Path(predictions).stem}.origin.json"
        notes.append(f"leaks: unknown; {Path(predictions).name} has no {record} (pass checkpoint=RUN to check)")
    return Provenance.of(name, examples, [*models, *others], notes)
