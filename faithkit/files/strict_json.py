"""Reads JSON that others may have damaged: whole, in UTF-8, with plain numbers and each key once, or refused."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from faithkit.errors import UserError, shorten


def read_strict_json(path: Path, *, hint: str) -> Any:
    """Reads one JSON document.

    Args:
        hint: What to do about a broken one.

    Raises:
        UserError: It is missing, empty, cut, not UTF-8, nested without end, or has NaN, infinity or a key twice.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise UserError("the file is missing", place=str(path), hint=hint) from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: byte {error.start}", place=str(path), hint=hint) from error
    if not text.strip(" \t\r\n\0"):
        raise UserError("the file is empty", place=str(path), hint=hint)
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise UserError(f"broken JSON: {error.msg}", place=f"{path}, line {error.lineno}", hint=hint) from error
    except RecursionError as error:
        raise UserError("broken JSON: nested too deeply", place=str(path), hint=hint) from error
    except ValueError as error:
        raise UserError(f"broken JSON: {error}", place=str(path), hint=hint) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shorten(key)} stands twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{shorten(text)} is too large")
    return value
