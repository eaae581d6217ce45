"""Checks of marked spans: inside the answer, not empty, of a known label, and equal to the text that they quote."""

from collections.abc import Iterator, Mapping

from data_modules.reading.rows import BadRow, Row
from faithkit.errors import shorten
from faithkit.records import Span

COUNTING = "offsets count characters of the answer from 0, and the end is the place behind the last one"


def read_spans(
    row: Row, name: str, answer: str, label_name: str, labels: Mapping[str, str], default: str | None = None
) -> Iterator[tuple[Span, Row]]:
    """The spans of the list under `name`, each with its own object; overlapping and repeated spans are legal.

    Args:
        label_name: The field of an object that holds its label.
        labels: Labels by the way they are spelt, in lower case.
        default: The label of a span that names none; None where it must.
    """
    for index, values in enumerate(row.items(name)):
        try:
            item = row.inside(values)
            label = default if default and item.values.get(label_name) is None else item.choice(label_name, labels)
            start, end = _bounds(item, answer)
            yield Span(start=start, end=end, label=label), item
        except BadRow as error:
            raise error.within(f"{name}[{index}]") from error


def _bounds(item: Row, answer: str) -> tuple[int, int]:
    start, end = _offset(item, "start"), _offset(item, "end")
    if end > len(answer):
        raise BadRow(f"field 'end' is {end}, but the answer has {len(answer)} characters", hint=COUNTING)
    if start > end:
        raise BadRow(f"field 'start' is {start}, behind its 'end' {end}", hint=COUNTING)
    if start == end:
        raise BadRow(f"'start' and 'end' are both {start}: the span holds nothing", hint=COUNTING)
    text = item.values.get("text")
    if text is not None and text != answer[start:end]:
        here = f"the answer has {shorten(answer[start:end])} at {start} to {end}"
        raise BadRow(f"field 'text' is {shorten(text)}, but {here}", hint=COUNTING)
    return start, end


def _offset(item: Row, name: str) -> int:
    value = item.values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadRow(f"field {name!r} must be a whole number from 0, got {shorten(value)}", hint=COUNTING)
    return value


def flag(item: Row, name: str) -> bool:
    """The true or false under `name`; false where it is not given."""
    value = item.values.get(name, False)
    if not isinstance(value, bool):
        raise BadRow(f"field {name!r} must be true or false, got {shorten(value)}")
    return value


def identifier(row: Row, name: str) -> str:
    """The id under `name`: text, or a whole number as text."""
    value = row.values.get(name)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else row.text(name)
