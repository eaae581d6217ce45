"""Makes the prompts that a generator reads, and checks that model and answer have room."""

from collections import Counter
from collections.abc import Sequence

from data_modules.encoding.turns import TurnEncoder
from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding, Prompt
from faithkit.records import Example
from generation.control_names import control_tokens


def build_prompts(
    encoder: TurnEncoder,
    examples: Sequence[Example],
    *,
    control: Sequence[str] | None,
    decoding: Decoding,
    longest: int | None,
) -> list[Prompt]:
    """Encodes the contexts of examples as prompts with the examples' ids.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
        longest: Tokens of prompt and answer together that the model has places for; None for any number.
    """
    tokens = control_tokens(encoder.layout.control, control)
    contexts = encoder.contexts(examples, Counter(), [tokens] * len(examples) if tokens else ())
    if longest is not None:
        is_seq2seq = bool(encoder.decoder_prefix)  # its decoder reads the prefix and the answer alone
        _check_room(decoding, 1 if is_seq2seq else int(contexts.lengths.max(initial=0)), longest)
    return [Prompt(example.id, contexts.row(place)) for place, example in enumerate(examples)]


def _check_room(decoding: Decoding, read_before: int, longest: int) -> None:
    """Refuses answers that may need more places than the model has."""
    needed = read_before + decoding.max_new_tokens
    if needed > longest:
        problem = f"an answer of {decoding.max_new_tokens} tokens may need {needed} places; the model has {longest}"
        hint = f"set decoding.max_new_tokens={max(1, decoding.max_new_tokens - needed + longest)} or less"
        raise UserError(problem, hint=hint)
