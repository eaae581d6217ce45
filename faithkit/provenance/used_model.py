"""The models behind predictions: weights, training data, what they have seen, and the leaks of a test set.

`NAME.origin.json` is next to `NAME.jsonl`. It names the predicted rows, the models with their weights and thresholds,
and a hash of the predictions, so that a later score can report them. Predictions without it can be scored, too. Test
rows are named by fingerprints of what a model reads and of what it is compared with.

`seen_rows.parquet`, next to a model's weights, holds the keys of rows, knowledge texts and groups
(`faithkit.provenance.row_keys`) that the model was trained on, chosen on (validation, for the best checkpoint) and
calibrated on, with those of the models that its training began with. Each list is sorted and stored as differences of
46-bit numbers: 10 million rows of which no two share anything take 96 MB. A key that was seen is always found; another
one is found in a list of n with a probability of n / 2^46: 1.4e-7 with 10 million.

A row of a test set is leaked where the row (its knowledge with its response), its knowledge or its group (a dialogue or
document) was seen in any use: the others are new to the model. Only trainings of this framework are known, not what
downloaded weights were pretrained on.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from faithkit.detector import detector_kinds
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import dumps, hash_file, write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import MARK, SIDECAR, read_stored
from faithkit.languages import ANY, ENGLISH
from faithkit.packages import is_missing
from faithkit.provenance.row_keys import NO_KEY, RowKeys, row_keys
from faithkit.records import Example
from faithkit.settings.types import Block, NonNegativeInt, Text
from faithkit.weights.resolve import fetch_folder, hash_folder, hash_weights, hub_file, is_hub_name

Keys = NDArray[np.uint64]

SEEN_ROWS_FILE = "seen_rows.parquet"
TRAINED, CHOSEN, CALIBRATED = USES = ("trained", "chosen", "calibrated")
KEY_NAMES = RowKeys._fields
BITS = 46  # of a key that are kept
SHORTENED = np.uint64(64 - BITS)  # those that are not
# Of keys and file: files of other versions cannot be compared.
VERSION = "1"

List = tuple[str, str]  # a use and a kind


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Keys of everything that a model has seen.

    Args:
        lists: By use and kind the shortened keys, sorted, each once.
        unknown_bases: Models that it was trained from and that have no record of their training rows.
    """

    lists: Mapping[List, Keys]
    unknown_bases: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, uses: Mapping[str, Iterable[RowKeys]], unknown_bases: Iterable[str] = ()) -> "SeenRows":
        """Collects keys; of what an iterator gives nothing but the numbers is held."""
        lists: dict[List, Keys] = {}
        for use, parts in uses.items():
            columns = zip(*([keys[keys != NO_KEY] >> SHORTENED for keys in part] for part in parts), strict=True)
            lists |= {(use, kind): _sorted(column) for kind, column in zip(KEY_NAMES, columns, strict=False)}
        return cls(lists, tuple(unknown_bases))

    def __or__(self, other: "SeenRows") -> "SeenRows":
        """Joins what two models have seen."""
        named = {**self.lists, **other.lists}
        lists = {name: _sorted([side.lists.get(name, _NOTHING) for side in (self, other)]) for name in named}
        return SeenRows(lists, tuple(dict.fromkeys((*self.unknown_bases, *other.unknown_bases))))

    def contains(self, use: str, kind: str, keys: Keys) -> NDArray[np.bool_]:
        """Marks the full keys that are in a list."""
        known, wanted = self.lists.get((use, kind), _NOTHING), keys >> SHORTENED
        if not len(known):
            return np.zeros(len(keys), bool)
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return (known[place] == wanted) & (keys != NO_KEY)

    def write(self, folder: Path) -> None:
        """Writes the file into a folder that takes its place when it is whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [(use, kind) for use in USES for kind in KEY_NAMES]
        found = [self.lists.get(name, _NOTHING) for name in names]
        label = np.repeat(np.arange(len(names), dtype=np.int8), [len(keys) for keys in found])
        labels = pa.array([f"{use} {kind}" for use, kind in names])
        table = pa.table(
            {"list": pa.DictionaryArray.from_arrays(label, labels), "key": np.concatenate(found).view(np.int64)}
        )
        about = {"version": VERSION, "untold": "\n".join(self.unknown_bases)}
        pq.write_table(
            table.replace_schema_metadata(about),
            folder / SEEN_ROWS_FILE,
            compression="none",  # differences are random bits
            use_dictionary=["list"],
            column_encoding={"key": "DELTA_BINARY_PACKED"},
            write_statistics=False,
        )


def read_seen(folder: Path) -> SeenRows | None:
    """Reads the file of a model's folder; None if it has none.

    Raises:
        UserError: It is damaged, or of a later version.
    """
    path = folder / SEEN_ROWS_FILE
    if not path.exists():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, read_dictionary=["list"]).combine_chunks()
        about = {name.decode(): text.decode() for name, text in (table.schema.metadata or {}).items()}
        column = table["list"].chunk(0) if len(table) else pa.array([], pa.string()).dictionary_encode()
        label, names = column.indices.to_numpy(), column.dictionary.to_pylist()
        keys = table["key"].to_numpy().view(np.uint64)
        version, unknown_bases = about["version"], tuple(filter(None, about["untold"].split("\n")))
    except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException) as error:
        hint = "export the run again, or copy the folder again"
        raise UserError(f"damaged: {shorten(str(error))}", place=str(path), hint=hint) from error
    if version != VERSION:
        raise UserError(f"of version {shorten(version)}, not {VERSION}", place=str(path), hint="use a newer faithkit")
    bounds = np.searchsorted(label, np.arange(len(names) + 1))  # one list after the other
    lists = {}
    for name, begin, end in zip(names, bounds[:-1], bounds[1:], strict=True):
        use, _, kind = name.partition(" ")
        lists[use, kind] = keys[begin:end]
    return SeenRows(lists, unknown_bases)


_NOTHING: Keys = np.zeros(0, np.uint64)


def _sorted(parts: Sequence[Keys]) -> Keys:
    """Sorts all parts into one list without duplicates, many times faster than numpy's `unique`."""
    keys = np.sort(np.concatenate(parts))
    fresh = np.ones(len(keys), bool)
    fresh[1:] = keys[1:] != keys[:-1]
    return keys[fresh]


WITHOUT_LEAKED = "without_leaked/"  # before the names of metrics of the rows that are left


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows, knowledge texts and groups."""

    rows: int
    knowledge: int
    groups: int


@dataclass(frozen=True, slots=True, eq=False)
class Leaks:
    """The rows of a test set that a model has seen.

    Args:
        sizes: Its rows, different knowledge texts and groups.
        counts: For each use the same three numbers, of what was seen in that use.
        rows: Marks the leaked rows [N].
    """

    sizes: RowCounts
    counts: dict[str, RowCounts]
    rows: NDArray[np.bool_]

    def to_dict(self) -> dict[str, Any]:
        """Gives the counts as metrics.json has them."""
        return {"of": asdict(self.sizes), **{use: asdict(number) for use, number in self.counts.items()}}


def find_leaks(examples: Sequence[Example], seen: SeenRows) -> Leaks:
    """Finds what was seen of some examples.

    A group was seen where its name was, within its dataset and split, or one of its rows.
    """
    keys = row_keys(examples)
    _, group = np.unique(keys.group, return_inverse=True)
    leaked, counts = np.zeros(len(examples), bool), {}
    for use in USES:
        in_row, in_knowledge, in_group = (
            seen.contains(use, kind, column) for kind, column in zip(RowKeys._fields, keys, strict=True)
        )
        touched = np.bincount(group, in_row | in_group) > 0  # [groups]
        known = len(set(keys.knowledge[in_knowledge].tolist()) - {NO_KEY})
        counts[use] = RowCounts(int(in_row.sum()), known, int(touched.sum()))
        leaked |= in_row | in_knowledge | touched[group]
    num_texts = len(set(keys.knowledge.tolist()) - {NO_KEY})
    sizes = RowCounts(len(examples), num_texts, int(group.max(initial=-1)) + 1)
    return Leaks(sizes, counts, leaked)


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
