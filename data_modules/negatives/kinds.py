"""The kinds of negatives by their names."""

from collections.abc import Sequence

from faithkit.errors import UserError

ORIGINAL, ENTITY_SWAP, VERBATIM, OTHER = "original", "entity_swap", "verbatim", "other"
KINDS = (ORIGINAL, ENTITY_SWAP, VERBATIM, OTHER)


def check_kinds(kinds: Sequence[str], num: int) -> None:
    """Checks the settings.

    Raises:
        UserError: An unknown kind, a kind named twice, or fewer than one negative.
    """
    if isinstance(kinds, str) or not kinds or set(kinds) - set(KINDS) or len(set(kinds)) < len(kinds):
        shown = kinds if isinstance(kinds, str) else list(kinds)
        raise UserError(f"kinds of negatives: {shown!r}", hint=f"give a list of some of {', '.join(KINDS)}")
    if not isinstance(num, int) or num < 1:
        raise UserError(f"number of negatives: {num!r}", hint="use 1 or more")
