"""The rows that a model has seen, as hashes in a file next to its weights, and the leaks of a test set.

`seen_rows.parquet` holds the keys of rows, knowledge texts and groups (`faithkit.provenance.row_keys`) that the model
was trained on, chosen on (validation, for the best checkpoint) and calibrated on, with those of the models that its
training began with. Each list is sorted and stored as differences of 46-bit numbers: 10 million rows of which no two
share anything take 96 MB. A key that was seen is always found; another one is found in a list of n with a probability
of n / 2^46: 1.4e-7 with 10 million.

A row of a test set is leaked where the row (its knowledge with its response), its knowledge or its group (a dialogue or
document) was seen in any use: the others are new to the model. Only trainings of this framework are known, not what
downloaded weights were pretrained on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.provenance.row_keys import NO_KEY, RowKeys, row_keys
from faithkit.records import Example

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
