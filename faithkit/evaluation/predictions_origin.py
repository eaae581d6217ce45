"""Where a predictions file is from: a small file beside it, `NAME.origin.json` beside `NAME.jsonl`.

It names the rows that were predicted, the models with their weights and thresholds, and the hash of the predictions
themselves, so that a later score can say what it stands on. Predictions without it are scored all the same.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.evaluation.fingerprints import TestRows
from faithkit.files.atomic import write_json
from faithkit.files.hashes import hash_files
from faithkit.files.strict_json import read_strict_json
from faithkit.records import Example
from faithkit.weights.used_model import UsedModel, describe_model


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


def write_origin(predictions: Path, dataset: str, examples: Sequence[Example], models: Sequence[UsedModel]) -> None:
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
        stored = read_strict_json(path, hint="")
        rows = TestRows(**stored["rows"])
        if stored["predictions"] != _hash(predictions):
            return PredictionsOrigin(reason=f"{predictions.name} was changed since {path.name} was written")
        return PredictionsOrigin(rows=rows, models=tuple(_recognised(model) for model in stored["models"]))
    except (UserError, KeyError, TypeError, AttributeError):
        return PredictionsOrigin(reason=f"{path.name} is damaged")


def _recognised(stored: Mapping[str, Any]) -> UsedModel:
    """The model of an origin, with what it has seen where its folder still has the same weights."""
    if _is_here(stored["path"]):
        with suppress(UserError):  # a damaged folder is another one
            model = describe_model(stored["path"], stored["role"])
            if model.weights is not None and model.weights == stored["weights"]:
                return model
    return UsedModel(**stored, reason="it is no longer at that place with the same weights")


def _is_here(path: str) -> bool:
    """Tells whether a path names a model's folder on this machine."""
    return (Path(path).expanduser() / "hf").is_dir() or (Path(path).expanduser() / "config.json").exists()


def _hash(path: Path) -> str:
    return hash_files(path.parent, [path.name])[path.name]
