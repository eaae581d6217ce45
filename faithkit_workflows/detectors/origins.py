"""Keeps where predictions are from: the models that make them now, or what the file beside given ones tells."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from faithkit.files.jsonl import write_jsonl
from faithkit.pages.tables import escape_terminal
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.predictions_origin import TestRows, read_origin, write_origin
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance
from faithkit.weights.used_model import UsedModel, describe_model
from faithkit_workflows.answering.answer_strategy import Answerer
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers
from faithkit_workflows.detectors.loading import Loaded, describe_detector


def write_with_origin(
    path: Path,
    name: str,
    examples: Sequence[Example],
    answerer: Answerer,
    models: Sequence[UsedModel],
    *,
    at_a_time: int,
    texts: bool = True,
) -> list[Prediction]:
    """Writes answers as `write_answers` does, and beside them that these models answered these rows.

    Args:
        name: The dataset of the rows.
        models: Those that have a part in the answers.
        texts: With the texts of each example, so that the file can be read alone.
    """
    line = partial(to_line, texts=texts, generated=not isinstance(answerer, DetectorAnswerer))
    answers = write_answers(path, examples, answerer, at_a_time=at_a_time, line_of=line)
    write_origin(path, name, examples, models)
    return answers


def write_given(
    path: Path,
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    texts: bool = True,
    generated: bool = False,
) -> None:
    """Writes predictions that were given, beside the examples that they are of, as those that a run makes itself.

    Args:
        generated: They answer the examples, whose responses are the references.
    """
    written = (to_line(predictions[one.id], one, texts=texts, generated=generated) for one in examples)
    write_jsonl(path, written)


def judge_examples(
    path: Path, name: str, examples: Sequence[Example], loaded: Loaded, *, at_a_time: int, texts: bool = True
) -> tuple[dict[str, Prediction], Provenance]:
    """Has a detector judge examples and tell what there is to tell; gives predictions by id, and their origin."""
    answerer = DetectorAnswerer(loaded.detector)
    written = write_with_origin(path, name, examples, answerer, loaded.models, at_a_time=at_a_time, texts=texts)
    loaded.tell()
    return {prediction.id: prediction for prediction in written}, Provenance.of(name, examples, loaded.models)


def origin_of_file(
    predictions: str,
    name: str,
    examples: Sequence[Example],
    *,
    checkpoint: str | None,
    others: Sequence[UsedModel] = (),
) -> Provenance:
    """Describes given predictions of a benchmark's examples, by the file beside them.

    Args:
        checkpoint: The model that the command says they are from; used where the file beside them is missing.
        others: Further models that have a part in the metrics.
    """
    origin, notes = read_origin(Path(predictions).expanduser()), []
    models = list(origin.models)
    if origin.rows is None:
        models = [describe_model(checkpoint)] if checkpoint else []
        unknown = "whose they are is taken from checkpoint=" if checkpoint else "whose they are is not known"
        notes.append(f"from: {unknown}, since {origin.reason}")
    elif origin.rows.rows != (here := TestRows.of(name, examples)).rows:
        notes.append(
            f"from: these predictions were made on other rows: {escape_terminal(str(origin.rows))}, and not {here}"
        )
    if not models:
        notes.append("leaks: cannot be told of predictions from nobody knows where; checkpoint=RUN names their model")
    return Provenance.of(name, examples, [*models, *others], notes)


def helpers_of(paths: Mapping[str, str | None]) -> list[UsedModel]:
    """Describes the models that help with metrics or answers, by role."""
    return [model for role, path in paths.items() if path for model in describe_detector(path, role)]
