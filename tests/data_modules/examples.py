"""Examples for tests, with what a test does not name filled in, and the content of encoded ones."""

from itertools import count
from typing import Any

from data_modules.encoding.encoder import EncodedSplit, Ragged
from faithkit.records import Example, Turn

HISTORY = (Turn(speaker="seeker", text="the old river"), Turn(speaker="wizard", text="a long one"))
_numbers = count()


def example(**values: Any) -> Example:
    """An example; every call gives another id and, unless named, another group."""
    number = next(_numbers)
    defaults: dict[str, Any] = {
        "id": f"e{number}",
        "source": "test",
        "split": "train",
        "group": f"g{number}",
        "knowledge": "The river is long.",
        "response": "It is long.",
        "label": "faithful",
    }
    return Example(**{**defaults, **values})


def encoded_content(encoded: EncodedSplit) -> tuple[Any, ...]:
    """Everything that an entry of the cache holds, to be compared."""
    columns = {
        name: (column.values.tolist(), column.offsets.tolist()) if isinstance(column, Ragged) else column.tolist()
        for name, column in encoded.columns.items()
    }
    examples = [example.to_dict() for example in encoded.examples(range(len(encoded)))]
    return columns, encoded.groups.tolist(), examples, encoded.counts, encoded.rejects, encoded.fingerprint
