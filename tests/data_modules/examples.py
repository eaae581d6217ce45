"""Examples for tests, with what a test does not name filled in."""

from itertools import count
from typing import Any

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
