"""What a threshold is chosen for: the best F1 or macro-F1, a precision, or nothing."""

import re

from faithkit.errors import UserError

ARGMAX = "argmax"  # chooses nothing: the threshold stays at 0.5, the likelier class


def parse_target_precision(aim: str) -> float | None:
    """Reads the precision that an aim asks for; None for the other aims.

    Raises:
        UserError: An unknown aim.
    """
    if aim in ("f1", "macro_f1", ARGMAX):
        return None
    match = re.fullmatch(r"precision\s*>=\s*(\d*\.?\d+)", aim.strip())
    if not match or not 0 < float(match[1]) <= 1:
        raise UserError(f"unknown aim {aim!r} for the threshold", hint="use f1, macro_f1, argmax or precision>=0.9")
    return float(match[1])
