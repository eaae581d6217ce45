"""Keeps the origin of predictions: `NAME.origin.json`, a file next to `NAME.jsonl`.

It names the predicted rows, the models with their weights and thresholds, and a hash of the predictions, so that a
later score can report them. Predictions without it can be scored, too. Test rows are named by fingerprints of what a
model reads and of what it is compared with.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from faithkit.errors import UserError
from faithkit.files.atomic import dumps, hash_files, write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.provenance.used_model import UsedModel, describe_model
from faithkit.records import Example
from faithkit.settings.types import Block, NonNegativeInt, Text

HASH_BYTES = 16  # bytes of a hash
NUM_SHOWN_DIGITS = 8  # characters of it that a reader sees


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRows:
    """The rows of a test set, whatever their order.

    Args:
        dataset: The test set's name in reports.
        split: Official splits that the rows are from.
        rows: A hash of what a model reads: ids, knowledge, history and responses.
        gold: A hash of what it is compared with: labels, spans, tags and references.
    """

    __test__ = False  # pytest: this is not a test

    dataset: str
    split: str
    num_rows: int
    rows: str
    gold: str

    @classmethod
    def of(cls, dataset: str, examples: Iterable[Example]) -> "TestRows":
        """Describes the rows that some examples are; of any number of them none is held."""
        splits: set[str] = set()
        # The hashes of the rows are added up, so that their order changes nothing.
        num_rows = rows = gold = 0
        for example in examples:
            splits.add(example.split)
            spans = None if example.spans is None else [[span.start, span.end, span.label] for span in example.spans]
            compared = [example.id, example.label, spans, list(example.tags), example.reference]
            num_rows, rows, gold = num_rows + 1, rows + hash_texts(example), gold + _hash(compared)
        totals = {"rows": rows, "gold": gold}
        sums = {name: f"{total % 256**HASH_BYTES:0{2 * HASH_BYTES}x}" for name, total in totals.items()}
        return cls(dataset=dataset, split=", ".join(sorted(splits)), num_rows=num_rows, **sums)

    def __str__(self) -> str:
        return f"{self.dataset} {self.split}, {self.num_rows:,} rows {self.rows[:NUM_SHOWN_DIGITS]}"


def hash_texts(example: Example) -> int:
    """Hashes the id and the texts of an example."""
    history = [[turn.speaker, turn.text] for turn in example.history]
    return _hash([example.id, example.knowledge, history, example.response])


def _hash(values: list[Any]) -> int:
    text = dumps(values).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=HASH_BYTES).digest())


class StoredRows(Block):
    """The kinds of the values of `TestRows`."""

    dataset: Text
    split: str  # empty if there are no rows
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
        rows: The rows that were predicted; None if it is not known.
        models: Those that had a part in it.
        reason: Why nothing is known.
    """

    rows: TestRows | None = None
    models: tuple[UsedModel, ...] = ()
    reason: str = ""


def origin_path(predictions: Path) -> Path:
    """Returns the path of the origin of a predictions file."""
    return predictions.with_suffix(".origin.json")


def write_origin(predictions: Path, dataset: str, examples: Iterable[Example], models: Sequence[UsedModel]) -> None:
    """Writes the origin of a finished predictions file."""
    stored = {
        "rows": asdict(TestRows.of(dataset, examples)),
        "models": [model.to_dict() for model in models],
        "predictions": hash_files(predictions.parent, [predictions.name])[predictions.name],
    }
    write_json(origin_path(predictions), stored)


def read_origin(predictions: Path) -> PredictionsOrigin:
    """Reads the origin of a predictions file; one that does not fit the file is none."""
    path = origin_path(predictions)
    if not path.exists():
        return PredictionsOrigin(reason=f"{predictions.name} has no {path.name}")
    try:
        stored = StoredOrigin.model_validate(read_strict_json(path, hint=""))
    except (UserError, ValidationError):
        return PredictionsOrigin(reason=f"{path.name} is damaged")
    if stored.predictions != hash_files(predictions.parent, [predictions.name])[predictions.name]:
        return PredictionsOrigin(reason=f"{predictions.name} was changed since {path.name} was written")
    models = []
    for one in stored.models:
        model = UsedModel(**one.model_dump(), reason="it is no longer at that place with the same weights")
        with suppress(UserError, OSError):  # a damaged folder is another one, a damaged path none at all
            folder = Path(one.path).expanduser()
            if (folder / "hf").is_dir() or (folder / "config.json").exists():
                here = describe_model(one.path, one.role)  # with what it has seen
                model = here if here.weights is not None and here.weights == one.weights else model
        models.append(model)
    return PredictionsOrigin(rows=TestRows(**stored.rows.model_dump()), models=tuple(models))
