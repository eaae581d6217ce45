"""Fingerprints of test rows: a name for exactly the rows that predictions were made on and metrics stand on."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import islice
from operator import itemgetter
from tempfile import TemporaryFile
from typing import Any

from faithkit.files.atomic import dumps
from faithkit.records import Example

SIZE = 16  # bytes of a hash
HELD = 10_000  # rows in memory at a time
SHOWN = 8  # characters of it that a reader sees


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRows:
    """The rows of a test set, whatever their order.

    Args:
        dataset: The test set's name in reports.
        split: Official splits that the rows are from.
        rows: A hash of what a model reads: ids, knowledge, history and responses.
        gold: A hash of what it is compared with: labels, spans, tags and references.
    """

    __test__ = False  # pytest: this is no test

    dataset: str
    split: str
    num_rows: int
    rows: str
    gold: str

    @classmethod
    def of(cls, dataset: str, examples: Iterable[Example]) -> "TestRows":
        """Describes the rows that some examples are; of many it holds a part, and sorts the others on the disk."""
        splits: set[str] = set()
        hashes = {"rows": hashlib.blake2b(digest_size=SIZE), "gold": hashlib.blake2b(digest_size=SIZE)}
        number = 0
        with ExitStack() as files:
            for _, read, compared in merge(*_sorted_parts(examples, splits, files), key=itemgetter(0)):
                hashes["rows"].update(read.encode(errors="surrogatepass"))
                hashes["gold"].update(compared.encode(errors="surrogatepass"))
                number += 1
        digests = {name: digest.hexdigest() for name, digest in hashes.items()}
        return cls(dataset=dataset, split=", ".join(sorted(splits)), num_rows=number, **digests)

    def __str__(self) -> str:
        return f"{self.dataset} {self.split}, {self.num_rows:,} rows {self.rows[:SHOWN]}"

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields as metrics.json has them."""
        return asdict(self)


def _read(example: Example) -> list[Any]:
    history = [[turn.speaker, turn.text] for turn in example.history]
    return [example.id, example.knowledge, history, example.response]


def _compared(example: Example) -> list[Any]:
    spans = None if example.spans is None else [[span.start, span.end, span.label] for span in example.spans]
    return [example.id, example.label, spans, list(example.tags), example.reference]


def _sorted_parts(
    examples: Iterable[Example], splits: set[str], files: ExitStack
) -> list[Iterable[tuple[str, str, str]]]:
    """Gives the rows in parts that are sorted by id: id, what is read, what is compared with.

    Args:
        splits: Takes the rows' splits.
        files: Closes the files of all parts but the last.
    """
    parts: list[Iterable[tuple[str, str, str]]] = []
    rest = iter(examples)
    while chunk := sorted(islice(rest, HELD), key=lambda example: example.id):
        splits.update(example.split for example in chunk)
        rows = ((example.id, dumps(_read(example)), dumps(_compared(example))) for example in chunk)
        if len(chunk) < HELD:
            parts.append(list(rows))
            break
        file: Any = files.enter_context(TemporaryFile("w+", encoding="utf-8", newline="\n"))  # noqa: SIM115
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
        file.seek(0)
        parts.append(tuple(json.loads(line)) for line in file)
    return parts
