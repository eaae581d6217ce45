"""Checks single values where a record is built; errors name the field, the value, and what is allowed.

Nothing is converted: booleans and texts are no numbers.
"""

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from faithkit.errors import UserError, shorten

FAR = 100_000  # a higher bound is left out of hints


def check_number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    """Refuses all but a finite number from `low` to `high`, bounds included."""
    kind: Any = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        what = "a whole number" if whole else "a number"
        allowed = f"of at least {low:g}" if high >= FAR > -low else f"from {low:g} to {high:g}"
        raise UserError(f"{name} is {shorten(value)}", hint=f"use {what} {allowed}")


def check_numbers(name: str, values: Any, low: float, high: float) -> None:
    """Refuses all but a list or tuple of finite numbers from `low` to `high`."""
    if not isinstance(values, (list, tuple)):
        raise UserError(f"{name} is {shorten(values)}", hint="use a list of numbers")
    for place, value in enumerate(values):
        check_number(f"{name}[{place}]", value, low, high)


def check_text(name: str, value: Any, allowed: Iterable[str] | None = None) -> None:
    """Refuses what is no text, or none of those allowed."""
    choices = None if allowed is None else list(allowed)
    if not isinstance(value, str) or (choices is not None and value not in choices):
        raise UserError(f"{name} is {shorten(value)}", hint=f"use {'a text' if choices is None else _either(choices)}")


def check_texts(name: str, values: Any) -> None:
    """Refuses what is no list or tuple of texts."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise UserError(f"{name} is {shorten(values)}", hint="use a list of texts")


def check_mapping(name: str, value: Any) -> None:
    """Refuses what is no mapping with text keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UserError(f"{name} is {shorten(value)}", hint="use a mapping of names to values")


def check_names(name: str, given: Mapping[str, Any], kind: Any, *, others: Iterable[str] = ()) -> None:
    """Refuses a mapping that lacks a key of a dataclass, or has another one.

    Args:
        kind: The dataclass; a field with a default may not lack either.
        others: Keys that the mapping has besides the fields.
    """
    check_mapping(name, given)
    wanted = {field.name for field in fields(kind)} | set(others)
    if lacks := sorted(wanted - given.keys()):
        raise UserError(f"{name} lacks {', '.join(lacks)}")
    if extra := sorted(given.keys() - wanted):
        raise UserError(f"{name} should not have {shorten(', '.join(extra))}")


def _either(choices: list[str]) -> str:
    return " or ".join(choices) if len(choices) < 3 else f"one of {', '.join(choices)}"
