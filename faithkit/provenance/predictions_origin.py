"""Keeps the origin of a predictions file in a small file beside it, `NAME.origin.json` beside `NAME.jsonl`.

It names the rows that were predicted, the models with their weights and thresholds, and the hash of the predictions
themselves, so that a later score can say what it stands on. Predictions without it are scored all the same.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.hashes import hash_files
from faithkit.files.strict_json import read_strict_json
from faithkit.provenance.fingerprints import TestRows
from faithkit.records import Example
from faithkit.settings.types import Block, NonNegativeInt, Text
from faithkit.weights.used_model import UsedModel, describe_model


class StoredRows(Block):
    """The kinds of the values of `TestRows`."""

    dataset: Text
    split: str  # empty where there are no rows
    num_rows: NonNegativeInt
    rows: Text
    gold: Text


class StoredModel(Block):
    """The kinds of the values that `UsedModel.to_dict` gives."""

    role: Text
    path: Text
    kind: Text | None
    weights: Text | None
    threshold: Text | None


class StoredOrigin(Block):
    """The kinds of the values in the file."""

    rows: StoredRows
    models: list[StoredModel]
    predictions: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionsOrigin:
    """The origin of a predictions file, as far as it is known.

    Args:
        rows: The rows that were predicted; None where it is not known.
        models: Those that had a part in it.
        reason: Why nothing is known.
    """

    rows: TestRows | None = None
    models: tuple[UsedModel, ...] = ()
    reason: str = ""


def origin_path(predictions: Path) -> Path:
    """Names the file beside a predictions file."""
    return predictions.with_suffix(".origin.json")


def write_origin(predictions: Path, dataset: str, examples: Iterable[Example], models: Sequence[UsedModel]) -> None:
    """Writes the origin of a finished predictions file beside it."""
    stored = {
        "rows": TestRows.of(dataset, examples).to_dict(),
        "models": [model.to_dict() for model in models],
        "predictions": _hash(predictions),
    }
    write_json(origin_path(predictions), stored)


def read_origin(predictions: Path) -> PredictionsOrigin:
    """Reads the origin of a predictions file; one that does not fit the file is none."""
    path = origin_path(predictions)
    if not path.exists():
        return PredictionsOrigin(reason=f"there is no {path.name} beside {predictions.name}")
    try:
        stored = StoredOrigin.model_validate(read_strict_json(path, hint=""))
    except (UserError, ValidationError):
        return PredictionsOrigin(reason=f"{path.name} is damaged")
    if stored.predictions != _hash(predictions):
        return PredictionsOrigin(reason=f"{predictions.name} was changed since {path.name} was written")
    models = tuple(_recognised(model) for model in stored.models)
    return PredictionsOrigin(rows=TestRows(**stored.rows.model_dump()), models=models)


def _recognised(stored: StoredModel) -> UsedModel:
    """The model of an origin, with what it has seen where its folder still has the same weights."""
    with suppress(UserError, OSError):  # a damaged folder is another one, a damaged path none at all
        if _is_here(stored.path):
            model = describe_model(stored.path, stored.role)
            if model.weights is not None and model.weights == stored.weights:
                return model
    return UsedModel(**stored.model_dump(), reason="it is no longer at that place with the same weights")


def _is_here(path: str) -> bool:
    """Tells whether a path names a model's folder on this machine."""
    return (Path(path).expanduser() / "hf").is_dir() or (Path(path).expanduser() / "config.json").exists()


def _hash(path: Path) -> str:
    return hash_files(path.parent, [path.name])[path.name]
