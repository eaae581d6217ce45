"""Control tokens by name: those that a user asks for, and the defaults of a faithful answer."""

from collections.abc import Sequence

from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from faithkit.errors import UserError


def check_controlled(groups: Sequence[str]) -> None:
    """Refuses a model that was trained without control tokens.

    Args:
        groups: The control groups of the model's layout.
    """
    if not groups:
        problem = "this model was trained without control tokens: there is nothing to ask for"
        raise UserError(problem, hint="train it with control=ctrl")


def control_tokens(groups: Sequence[str], names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Chooses one token of each of the model's control groups, in their order.

    Args:
        groups: The control groups of the model's layout.
        names: Tokens such as `high-overlap`. A group that is not named gets the token of a faithful answer: no first
            person, high overlap, entailed.

    Raises:
        UserError: A name that the model does not know, or two of one group.
    """
    known = {token.strip("<|>"): group for group in groups for token in CONTROL_TOKENS[group]}
    chosen = {group: CONTROL_TOKENS[group][-1] for group in groups}
    named: dict[str, str] = {}
    for name in names or ():
        name = name.strip("<|>")
        if name not in known:
            without = "leave control_tokens out, or train it with control=ctrl"
            hint = f"use some of {', '.join(known)}" if known else without
            raise UserError(f"this model knows no control token {name!r}", place="control_tokens", hint=hint)
        if known[name] in named:
            problem = f"control tokens {named[known[name]]!r} and {name!r} exclude each other"
            raise UserError(problem, place="control_tokens", hint="name one of them")
        named[known[name]] = name
        chosen[known[name]] = f"<|{name}|>"
    return tuple(chosen[group] for group in groups)
