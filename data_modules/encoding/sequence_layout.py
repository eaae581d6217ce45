"""The order of the parts of a sequence: of (knowledge, response) pairs, and of dialogue turns for generators.

    seq2seq   encoder: control, bos, knowledge marker + knowledge, turns each led by its speaker's marker, eos
              decoder: wizard marker + response, eos
    causal    the same one behind the other, without the eos in the middle

The control tokens of CTRL (Rashkin et al. 2021) come before everything else, one of each group.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, Field

from faithkit.errors import UserError, shorten
from faithkit.settings.check import options
from faithkit.settings.types import Conflict, NonNegativeInt, OneOf, Range

Groups = TypeVar("Groups", bound=Sequence[str])
KNOWLEDGE_FIRST, RESPONSE_FIRST = ORDERS = ("knowledge_response", "response_knowledge")
SEQ2SEQ, CAUSAL = "seq2seq", "causal"
DIALOGUE, KNOWLEDGE, SEEKER, WIZARD = "<|dialogue|>", "<|knowledge|>", "<|seeker|>", "<|wizard|>"
# Each marker with the word that initialises its embedding. DIALOGUE is the bos of tokenizers that have none.
MARKERS = {DIALOGUE: "dialogue", KNOWLEDGE: "knowledge", SEEKER: "user", WIZARD: "assistant"}
# Control tokens by group, in their order in a sequence; in a group from the unwanted level to the wanted one.
CONTROL_TOKENS = {
    "voice": ("<|first-person|>", "<|no-first-person|>"),
    "overlap": ("<|low-overlap|>", "<|medium-overlap|>", "<|high-overlap|>"),
    "entailment": ("<|contradicted|>", "<|neutral|>", "<|entailed|>"),
}


def check_control_groups(groups: Groups) -> Groups:
    """Refuses groups that are unknown or out of order."""
    if list(groups) != [name for name in CONTROL_TOKENS if name in groups]:
        hint = f"use some of {', '.join(CONTROL_TOKENS)}, in this order"
        raise UserError(f"control groups {shorten(list(groups))}", hint=hint)
    return groups


SequenceLength = Annotated[int, Range(ge=16, le=10**7)]
ResponseLength = Annotated[int, Range(ge=2, le=10**7)]


TOO_SHORT = Conflict(  # a sequence of a causal model includes the response
    lambda s: s.kind == CAUSAL and s.max_length < 16 + s.max_response_length,
    "model.max_length is {s.max_length}, model.max_response_length {s.max_response_length}",
    "leave 16 tokens or more besides the response",
)


@options("model")
class TurnLayout:
    """The lengths and parts of a sequence.

    Args:
        kind: SEQ2SEQ or CAUSAL.
        max_length: Tokens that the model reads: the encoder's input, or for causal models the whole sequence.
        max_response_length: Tokens of a response, eos counted. A causal sequence keeps this room free of history, so
            that a turn has the same history in training and when it is answered; a longer response takes more.
        max_history: Turns of history, at most; None takes all that fit.
        control: Names of the control groups, in the order of CONTROL_TOKENS.
    """

    kind: Annotated[str, OneOf((SEQ2SEQ, CAUSAL))]
    max_length: SequenceLength
    max_response_length: ResponseLength
    max_history: NonNegativeInt | None = None
    control: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(check_control_groups)] = ()

    conflicts: ClassVar[tuple[Conflict, ...]] = (TOO_SHORT,)


def bos_of(tokenizer: Any) -> str:
    """Returns the token that a sequence begins with: the tokenizer's bos, or DIALOGUE if it has none."""
    return tokenizer.bos_token or DIALOGUE


def add_markers(tokenizer: Any, layout: TurnLayout) -> dict[int, list[int]]:
    """Adds the special tokens that the tokenizer lacks, and padding where it has none.

    Returns:
        For each new token the ids of the words that describe it.
    """
    if tokenizer.eos_token is None:
        raise UserError("the tokenizer has no eos token: a response could not end", hint="use another model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # masked everywhere
    words = {token: word for token, word in MARKERS.items() if token != DIALOGUE or tokenizer.bos_token is None}
    words |= {
        token: token.strip("<|>").replace("-", " ") for group in layout.control for token in CONTROL_TOKENS[group]
    }
    have = tokenizer.get_vocab()
    described = {token: tokenizer(word, add_special_tokens=False)["input_ids"] for token, word in words.items()}
    new = [token for token in words if token not in have]
    tokenizer.add_tokens(new, special_tokens=True)
    return {tokenizer.convert_tokens_to_ids(token): described[token] for token in new}
