"""Finds where a benchmark's predictions are from: the models that made them now, or what a predictions file tells."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from faithkit.evaluation.fingerprints import TestRows
from faithkit.evaluation.predictions_origin import read_origin, write_origin
from faithkit.evaluation.reports.provenance import Provenance
from faithkit.evaluation.tables import harmless
from faithkit.records import Example
from faithkit.weights.used_model import UsedModel, describe_model
from workflows.detectors import describe_detector

__all__ = ["describe_model", "helpers_of", "origin_of_file", "write_origin"]


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
        notes.append(f"from: these predictions were made on other rows: {harmless(str(origin.rows))}, and not {here}")
    if not models:
        notes.append("leaks: cannot be told of predictions from nobody knows where; checkpoint=RUN names their model")
    return Provenance.of(name, examples, [*models, *others], notes)


def helpers_of(paths: Mapping[str, str | None]) -> list[UsedModel]:
    """Describes the models that help with metrics or answers, by role."""
    return [model for role, path in paths.items() if path for model in describe_detector(path, role)]
