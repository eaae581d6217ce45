"""Errors that a user can correct, with a hint at what to type, and suggestions for mistyped names."""

import re
from collections.abc import Iterable
from typing import Any

MAX_LINES = 5  # of an error that a user is shown


class UserError(ValueError):
    """A mistake that the user can correct: shown in at most five lines, without a traceback, with exit code 2.

    Args:
        problem: What is wrong, with the offending value in it.
        place: Where: a file with its line, a config key.
        hint: What to do about it.
    """

    def __init__(self, problem: str, *, place: str | None = None, hint: str | None = None):
        self.problem, self.place, self.hint = problem, place, hint
        lines = [problem]
        if place:
            lines.append(f"  at: {place}")
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))


class LimitExceeded(Exception):
    """A limit that the command was given is exceeded: everything is written, and the exit code is 1."""


def shorten(value: object, limit: int = 80) -> str:
    """Shortens a value so that an error message may quote it: one line, never long."""
    try:
        text = " ".join(repr(value).split())
    except RecursionError:  # lists in lists, nearly as deep as JSON may be read
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def nearest(name: str, known: Iterable[str], count: int = 3, *, alike: float = 0.6) -> list[str]:
    """Finds the known names that are most like a mistyped one, by at least this share of equal characters."""
    import difflib  # only a mistake needs it

    lowered = {other.lower(): other for other in known}
    return [lowered[found] for found in difflib.get_close_matches(name[:200].lower(), lowered, n=count, cutoff=alike)]


def choice_hint(value: Any, names: Iterable[Any]) -> str:
    """Names the choices, the one that was perhaps meant first."""
    texts = ["null" if name is None else str(name) for name in names]
    guess = nearest(str(value), texts, 1)
    listed = f"use {texts[0]}" if len(texts) == 1 else f"use one of {', '.join(texts)}"
    return f"did you mean {guess[0]}? {listed}" if guess else listed


def raise_problems(problems: Iterable[UserError]) -> None:
    """Raises all problems as one error; does nothing if there are none."""
    if found := list(problems):
        raise join_problems(found)


def join_problems(problems: list[UserError]) -> UserError:
    """Makes one error of several: a single one keeps its lines, each of several gets one line."""
    # A wrong value can be in several blocks by interpolation: it is reported by its first key.
    unique = list({re.sub(r"^[\w.]+\.(?=\w+ is )", "", str(p)): p for p in reversed(problems)}.values())[::-1]
    if len(unique) == 1:
        return unique[0]
    lines = []
    for one in unique:
        place, hint = f" (at {one.place})" if one.place else "", f": {one.hint}" if one.hint else ""
        lines.append(" ".join(f"{one.problem}{place}{hint}".split())[:400])
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more"]
    return UserError("\n".join(lines))
