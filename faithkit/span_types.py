"""The types of marked spans, on two axes: the relation to the context, and the element that is wrong.

Datasets and detectors name spans in different ways; faithkit/span_types.toml gives the type of each of their labels.

>>> span_type("ragtruth", "subtle_baseless")
{'relation': 'unsupported_addition', 'element': 'claim'}
>>> span_type("another", "wrong")  # a label that is not in the table has no type
{'relation': None, 'element': None}
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict, get_args

# The context says something else; it neither says nor contradicts it; it has no such thing as is named.
Relation = Literal["contradiction", "unsupported_addition", "fabricated_reference"]
Element = Literal[
    "number",
    "date",
    "unit",
    "entity",
    "role",
    "negation",
    "quantifier",
    "value",
    "identifier",
    "section",
    "claim",
    "action",
]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
ELEMENTS: tuple[Element, ...] = get_args(Element)
AXES: Mapping[str, tuple[str, ...]] = {"relation": RELATIONS, "element": ELEMENTS}
RAGTRUTH = "ragtruth"  # the label set of `faithkit.records.SPAN_TYPES`
TABLE = Path(__file__).with_suffix(".toml")


class SpanType(TypedDict):
    """The type of a span; None where an axis is unknown."""

    relation: Relation | None
    element: Element | None


_NO_TYPE: SpanType = {"relation": None, "element": None}


@cache
def label_sets() -> Mapping[str, Mapping[str, SpanType]]:
    """Reads the table: for each label set the types of its labels."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: {label: {**_NO_TYPE, **axes} for label, axes in rows.items()} for name, rows in found.items()}


def span_type(label_set: str, label: str) -> SpanType:
    """Returns the type of a label of a label set, in any case; unknown ones have none."""
    return label_sets().get(label_set, {}).get(label.lower()) or _NO_TYPE
