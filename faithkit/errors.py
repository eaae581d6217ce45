"""A user's mistake, told with a hint at what to do, and the names that were perhaps meant."""

from collections.abc import Iterable
from typing import Any


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


def shorten(value: object, limit: int = 80) -> str:
    """Shortens a value so that an error message may quote it: one line, never long."""
    try:
        text = " ".join(repr(value).split())
    except RecursionError:  # lists in lists, nearly as deep as JSON may be read
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Finds the known names that are most like a mistyped one."""
    import difflib  # only a mistake needs it

    lowered = {other.lower(): other for other in known}
    return [lowered[found] for found in difflib.get_close_matches(name[:200].lower(), lowered, n=count)]


def choice_hint(value: Any, names: Iterable[Any]) -> str:
    """Names the choices, the one that was perhaps meant first."""
    texts = [str(name) for name in names]
    guess = nearest(str(value), texts, 1)
    listed = f"use {texts[0]}" if len(texts) == 1 else f"use one of {', '.join(texts)}"
    return f"did you mean {guess[0]}? {listed}" if guess else listed
