"""Writes answers to a file, so that an interruption loses at most one chunk and does not change the file.

Examples are answered in chunks, in their order. A resumed run drops an incomplete chunk and continues after the last
complete one, so it answers the same chunks and produces the same file. A record of the models that made the predictions
is written next to them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from faithkit import signals
from faithkit.detector import Detector
from faithkit.errors import UserError, shorten
from faithkit.fast import return_freed_memory
from faithkit.files.jsonl import JsonlAppender, disk_errors, parse_prediction, read_numbered_jsonl, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.pages.page_tables import escape_terminal
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.predictions_origin import TestRows, read_origin, write_origin
from faithkit.provenance.used_model import UsedModel, describe_model
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance
from faithkit_workflows.answering.strategies import Answerer
from faithkit_workflows.detectors.loading import LoadedDetector

CHANGED_DATA_HINT = "the data have changed since: start a new run in another run_dir"


@dataclass(frozen=True, slots=True)
class DetectorAnswerer:
    """Lets a detector take the place of an answerer: it judges the responses of the examples."""

    detector: Detector

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object] | None = None) -> list[Prediction]:
        """Judges the examples."""
        predictions = []
        for prediction in self.detector.predict_examples(examples):
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
) -> list[Prediction]:
    """Answers the examples that the file lacks, and returns the answers to all of them.

    Args:
        path: A predictions file, new or from an interrupted run.
        chunk_size: Number of examples that are answered together.
        line_of: Makes the line of the file for an answer and its example; None writes the answer alone.
    """
    return list(stream_answers(path, examples, len(examples), answerer, chunk_size=chunk_size, line_of=line_of))


def stream_answers(
    path: Path,
    examples: Iterable[Example],
    total: int,
    answerer: Answerer,
    *,
    chunk_size: int,
    line_of: Callable[[Prediction, Example], dict[str, Any]] | None = None,
) -> Iterator[Prediction]:
    """Does the same as `write_answers` for any number of examples, with one chunk in memory.

    Args:
        total: The number of examples.

    Raises:
        UserError: The file answers other examples, or a line is broken.
    """
    if chunk_size < 1:
        raise UserError(f"save_every_num_rows is {chunk_size}", hint="use 1 or more")
    num_written = _truncate_to_complete_chunks(path, total, chunk_size)
    remaining = iter(examples)
    rows = read_numbered_jsonl(path) if path.exists() else iter(())
    for example in islice(remaining, num_written):
        try:
            number, row = next(rows)
            written = parse_prediction(row, f"{path}, line {number}")
        except UserError as error:
            hint = "delete this line and all lines after it: they are answered again"
            raise UserError(error.problem, place=error.place, hint=hint) from error
        if written.id != example.id or row.get("response", example.response) != example.response:
            changed = " with another response" if written.id == example.id else ""
            problem = f"the file answers {shorten(written.id)}, and the data have {shorten(example.id)}{changed}"
            raise UserError(problem, place=f"{path}, line {number}", hint=CHANGED_DATA_HINT)
        yield written
    with (
        JsonlAppender(path) as file,
        tqdm(total=total, initial=num_written, desc=path.stem, unit="row", mininterval=0.5, disable=None) as bar,
    ):
        for chunk, answers in answer_in_chunks(remaining, answerer, chunk_size=chunk_size, advance=bar.update):
            for answer, example in zip(answers, chunk, strict=True):
                file.append(line_of(answer, example) if line_of else answer.to_dict())
            file.sync()
            yield from answers


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


def _truncate_to_complete_chunks(path: Path, total: int, chunk_size: int) -> int:
    """Truncates a file to its complete chunks, and returns the number of its answers.

    Raises:
        UserError: The file has more answers than there are examples.
    """
    if not path.exists():
        return 0
    with JsonlAppender(path):
        pass  # opening it drops an incomplete last line
    chunk_ends = [0]  # in bytes
    count = size = 0
    with path.open("rb") as file:
        for line in file:
            size += len(line)
            count += bool(line.strip())
            if count and count % chunk_size == 0 and line.strip():
                chunk_ends.append(size)
    if count > total:
        raise UserError(f"{count} answers to {total} examples", place=str(path), hint=CHANGED_DATA_HINT)
    if count == total or count % chunk_size == 0:
        return count
    with disk_errors(path):
        os.truncate(path, chunk_ends[-1])
    return (len(chunk_ends) - 1) * chunk_size


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
    answers = write_answers(path, examples, answerer, chunk_size=config["save_every_num_rows"], line_of=line)
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
