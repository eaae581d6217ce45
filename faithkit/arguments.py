"""Checks the arguments of Critic, Tagger, Generator and Judge: one kind of error, with the name and a hint.

A check returns the value as the rest of the code takes it. Texts are checked in `faithkit.text_arguments`.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from faithkit.errors import UserError, choice_hint, nearest, shorten

MOST = 2**31 - 1  # of any count: what fits into the arrays that are planned with it
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def wrong(name: str, expected: str, value: Any, hint: str, place: str | None = None) -> UserError:
    """Says what an argument must be, and what was given."""
    return UserError(f"{name} must be {expected}, got {shorten(value)}", place=place, hint=hint)


def explain_keywords(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Refuses arguments that a public method does not take, and names those that it lacks.

    It is checked when the method is called, though the method be a generator that only starts later.
    """
    signature = inspect.signature(method)
    names = [name for name in signature.parameters if name not in ("self", "cls")]

    @wraps(method)
    def explained(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        __tracebackhide__ = True  # pytest shows the caller's line
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            problem, hint = str(error), f"it takes {', '.join(names)}"
            unknown = [name for name in kwargs if name not in names]
            if unknown:
                problem = f"there is no argument {shorten(unknown[0])}"
                guess = nearest(unknown[0], names, 1)
                hint = f"did you mean {guess[0]}? {hint}" if guess else hint
            raise UserError(f"{method.__qualname__}: {problem}", hint=hint) from error
        return method(*args, **kwargs)

    return explained


def read_path(path: Any, name: str = "path") -> str:
    """Reads where a model is: text or a Path, as text; `name` is the argument's."""
    hint = 'give a run such as "runs/...", its hf/ folder or a hub name'
    if not isinstance(path, str | os.PathLike):
        raise wrong(name, "a text or a Path", path, hint)
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip():
        raise wrong(name, "a text or a Path that is not empty", path, hint)
    try:
        Path(text).expanduser().stat()
    except (FileNotFoundError, NotADirectoryError):
        return text  # a hub name, or a mistake that loading explains
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, half a character, a user that is not there
        raise UserError(f"{name} cannot be looked up: {shorten(error)}", place=shorten(text), hint=hint) from error
    return text


def read_device(device: Any) -> str | None:
    """Reads a torch device that is here, as text; None stays None."""
    import torch

    if device is None:
        return None
    have = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    hint = f"use {' or '.join(have)}"
    if not isinstance(device, str | torch.device):
        raise wrong("device", "the name of a device", device, hint)
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError) as error:
        raise wrong("device", "a device of this machine", str(device), hint) from error
    return str(device)


def read_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Reads one of some words."""
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{name} is {shorten(value)}", hint=choice_hint(value, choices))
    return value


def read_count(name: str, value: Any, *, least: int = 1) -> int | None:
    """Reads a whole number, numpy's too; None stays None."""
    if value is None:
        return None
    if not _is_number(value, Integral) or not least <= value <= MOST:
        raise wrong(name, f"a whole number of {least} or more", value, f"use {name}=64, or leave it out")
    return int(value)


def read_probability(name: str, value: Any) -> float | None:
    """Reads a number from 0 to 1, numpy's too; None stays None."""
    if value is None:
        return None
    if not _is_number(value, Real) or not 0 <= value <= 1:
        raise wrong(name, "a probability from 0 to 1", value, f"use {name}=0.5, or leave it out")
    return float(value)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # a bool is a whole number to Python


def read_flag(name: str, value: Any) -> bool:
    """Reads True or False."""
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value, f"use {name}=True")
    return value
