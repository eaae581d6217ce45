"""Writes predictions together with the record of the models that made them, and reads that record."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.pages.page_tables import escape_terminal
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.predictions_origin import TestRows, read_origin, write_origin
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance
from faithkit.weights.used_model import UsedModel, describe_model
from faithkit_workflows.answering.strategies import Answerer
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers
from faithkit_workflows.detectors.loading import LoadedDetector


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
