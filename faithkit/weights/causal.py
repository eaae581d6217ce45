"""Checks of a causal language model before it is loaded, and the token that fills its batches."""

from typing import Any

from faithkit.errors import UserError

PLACES = 4096  # tokens of prompt and answer, of a model that names no limit


def check_end_token(tokenizer: Any, place: str) -> None:
    """Refuses a tokenizer without a token that ends an answer."""
    if tokenizer.eos_token_id is None:
        hint = "set eos_token in its tokenizer_config.json, or use another model"
        raise UserError("the tokenizer has no token that ends an answer", place=place, hint=hint)


def filler_token(tokenizer: Any) -> int:
    """Chooses the token that fills a batch, masked out: the padding token, else the one that ends an answer."""
    chosen: int = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return chosen


def check_places(config: Any, place: str, max_length: int | None, key: str = "max_length") -> int:
    """Checks a causal model's configuration; gives the tokens of prompt and answer that it may be asked for.

    Args:
        max_length: What is wanted; None for as many as the model has places for.
        key: Names it in the hint.

    Raises:
        UserError: It is an encoder-decoder, or has fewer places.
    """
    if config.is_encoder_decoder:
        raise UserError("judges are causal models, and this is an encoder-decoder", place=place, hint="use another")
    have = getattr(config, "max_position_embeddings", None)
    if max_length is not None and have is not None and max_length > have:
        problem = f"{key} is {max_length}, but this model has {have} places"
        raise UserError(problem, place=place, hint=f"set {key}={have} or less")
    return int(max_length or have or PLACES)
