"""A user's mistake, told with a hint at what to do."""


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
