"""A user's mistake, told so that the user can mend it."""


class UserError(ValueError):
    """A mistake that the user can mend: shown in at most five lines, without a traceback, with exit code 2.

    Args:
        problem: What is wrong, with the offending value in it.
        place: Where: a file with its line, a config key.
        mend: What to do about it.
    """

    def __init__(self, problem: str, *, place: str | None = None, mend: str | None = None):
        self.problem, self.place, self.mend = problem, place, mend
        lines = [problem]
        if place:
            lines.append(f"  at: {place}")
        if mend:
            lines.append(f"  mend: {mend}")
        super().__init__("\n".join(lines))


def shorten(value: object, limit: int = 80) -> str:
    """A value as an error message may quote it: one line, never long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
