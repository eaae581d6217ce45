"""Describes the models behind predictions: weights, training data, seen rows; keeps it in `NAME.origin.json`.

This file is next to `NAME.jsonl`. It names the predicted rows, the models with their weights and thresholds, and a hash
of the predictions, so that a later score can report them. Predictions without it can be scored, too. Test rows are
named by fingerprints of what a model reads and of what it is compared with.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from faithkit.detector import detector_kinds
from faithkit.errors import UserError
from faithkit.files.atomic import dumps, hash_file, write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import MARK, SIDECAR, read_stored
from faithkit.languages import ANY, ENGLISH
from faithkit.packages import is_missing
from faithkit.provenance.seen_rows import SeenRows, read_seen
from faithkit.records import Example
from faithkit.settings.types import Block, NonNegativeInt, Text
from faithkit.weights.resolve import fetch_folder, hash_folder, hash_weights, hub_file, is_hub_name

DATASETS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8")
)
EMBEDDED = "embedded"  # the prefix of the embedded corpus in the layout of a dataset
CHECKPOINT = "checkpoint"  # the role of the model that is evaluated
DEFAULT_THRESHOLD = "0.5, the default: nothing was fitted"
HASH_BYTES = 16  # bytes of a hash
NUM_SHOWN_DIGITS = 8  # characters of it that a reader sees


def training_sets(origin: Mapping[str, Any]) -> list[str]:
    """Lists the datasets of training; `embedded` for the embedded corpus in any layout.

    Args:
        origin: Of a model's faithkit.json.
    """
    sizes = (origin.get("data") or {}).get("sizes", {}).get("train", {})
    return sorted({EMBEDDED if str(name).startswith(EMBEDDED) else str(name) for name in sizes})


def trained_languages(origin: Mapping[str, Any]) -> tuple[str, ...]:
    """Lists the languages of the training data; `any` where they are unknown, as of your tables."""
    names = training_sets(origin)
    if not names or not all(name in DATASETS for name in names):
        return (ANY,)
    return tuple(sorted({code for name in names for code in DATASETS[name].get("language", (ENGLISH,))}))


@dataclass(frozen=True, kw_only=True)
class UsedModel:
    """A model that predictions come from.

    Args:
        role: `checkpoint`, or for instance `judge`.
        path: Its path on the command line.
        kind: critic, tagger or generator; None for a model from elsewhere.
        weights: A hash of its weights; None if they are not available.
        threshold: The threshold of its labels and its origin; None for a model without labels.
        find_seen: Finds the rows of its training, selection and calibration, when they are asked for.
        reason: Why they are unknown.
    """

    role: str
    path: str
    kind: str | None = None
    weights: str | None = None
    threshold: str | None = None
    find_seen: Callable[[], SeenRows | None] = lambda: None
    reason: str = ""

    @cached_property
    def seen(self) -> SeenRows | None:
        """The rows of its training, selection and calibration; None if unknown."""
        return self.find_seen()

    def to_dict(self) -> dict[str, Any]:
        """Returns the description for a predictions file and metrics.json."""
        return {name: getattr(self, name) for name in ("role", "path", "kind", "weights", "threshold")}


def describe_model(path: str, role: str = CHECKPOINT) -> UsedModel:
    """Describes a model that has been loaded: a run, an hf/ folder or a hub name."""
    folder = fetch_folder(path)
    stored = read_stored(folder) if folder else None
    if folder is None or stored is None:
        return UsedModel(
            role=role,
            path=path,
            weights=hash_weights(path),
            threshold=DEFAULT_THRESHOLD if role == CHECKPOINT else None,
            reason="it was not trained with faithkit",
        )
    is_unreadable = is_missing("pyarrow")  # an environment for scoring alone has none
    seen = None if is_unreadable else read_seen(folder)
    unknown = "pyarrow is not installed" if is_unreadable else "it has no record of the rows that it has seen"
    return UsedModel(
        role=role,
        path=path,
        kind=stored.get("kind"),
        weights=hash_folder(folder, stored.get("hashes")),
        threshold=_threshold(stored),
        find_seen=lambda: seen,
        reason="" if seen else unknown,
    )


def seen_before(weights: str | None) -> SeenRows:
    """Reads the rows that the initial weights of a training have seen; none for weights from elsewhere."""
    if weights is None:
        return SeenRows({})
    folder: Path | None = Path(weights).expanduser()
    if is_hub_name(weights):
        file = hub_file(weights)  # the weights are loaded: no request to the hub is needed
        config = read_strict_json(file, hint="download it again") if file else {}
        folder = fetch_folder(weights) if isinstance(config, dict) and MARK in config else None
    if folder is None or not (folder / SIDECAR).exists():
        return SeenRows({})
    return read_seen(folder) or SeenRows({}, (weights,))


def _threshold(stored: Mapping[str, Any]) -> str | None:
    kind = detector_kinds().get(str(stored.get("kind")))
    name = kind.threshold_key if kind else None
    thresholds = stored.get("thresholds")
    if name is None or not isinstance(thresholds, Mapping) or name not in thresholds:
        return None
    aim = str(thresholds.get("aim", ""))
    if aim.startswith("none"):
        return DEFAULT_THRESHOLD
    rows = ""
    with suppress(KeyError, TypeError, AttributeError, ValueError):  # the validation sets, where they are recorded
        sizes = stored["origin"]["data"]["sizes"]["validation"]
        rows = f" ({', '.join(f'{name}: {count:,} rows' for name, count in sizes.items())})"
    chosen = "of argmax" if aim == "argmax" else f"chosen for {aim} on validation{rows}"
    return f"{thresholds[name]:.4g}, {chosen}"


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


def write_origin(predictions: Path, dataset: str, examples: Iterable[Example], models: Sequence[UsedModel]) -> None:
    """Writes the origin of a finished predictions file."""
    stored = {
        "rows": asdict(TestRows.of(dataset, examples)),
        "models": [model.to_dict() for model in models],
        "predictions": hash_file(predictions),
    }
    write_json(predictions.with_suffix(".origin.json"), stored)


def read_origin(predictions: Path) -> PredictionsOrigin:
    """Reads the origin of a predictions file; one that does not fit the file is none."""
    path = predictions.with_suffix(".origin.json")
    if not path.exists():
        return PredictionsOrigin(reason=f"{predictions.name} has no {path.name}")
    try:
        stored = StoredOrigin.model_validate(read_strict_json(path, hint=""))
    except (UserError, ValidationError):
        return PredictionsOrigin(reason=f"{path.name} is damaged")
    if stored.predictions != hash_file(predictions):
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
