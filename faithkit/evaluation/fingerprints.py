"""Fingerprints of test rows: a name for exactly the rows that predictions were made on and metrics stand on."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from faithkit.files.atomic import dumps
from faithkit.records import Example

SIZE = 16  # bytes of a hash
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
    def of(cls, dataset: str, examples: Sequence[Example]) -> "TestRows":
        """Describes the rows that some examples are."""
        split = ", ".join(sorted({example.split for example in examples}))
        ordered = sorted(examples, key=lambda example: example.id)
        hashes = {"rows": _hash(ordered, _read), "gold": _hash(ordered, _compared)}
        return cls(dataset=dataset, split=split, num_rows=len(examples), **hashes)

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


def _hash(examples: Sequence[Example], fields: Callable[[Example], list[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=SIZE)
    for example in examples:
        digest.update(dumps(fields(example)).encode(errors="surrogatepass"))
    return digest.hexdigest()
