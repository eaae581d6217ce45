"""Loads the models that metrics use, through `faithkit.weights.resolve`."""

from typing import Any, NamedTuple

from faithkit.fast import accelerate, to_bf16, wants_bf16
from faithkit.weights.load import check_vocabulary, load_model, load_tokenizer
from faithkit.weights.resolve import loading


class Pretrained(NamedTuple):
    """A model in evaluation mode on its device, and its fast tokenizer."""

    model: Any
    tokenizer: Any
    device: Any


def load_pretrained(auto: str, weights: str, *, device: str | None = None, precision: str = "32-true") -> Pretrained:
    """Loads a model by folder, local name or hub name; nothing in it is executed.

    Args:
        auto: The name of transformers' Auto class.
        device: None takes the GPU where there is one.
        precision: bf16, or auto: bf16 where the hardware computes in it; anything else is fp32.
    """
    import torch
    import transformers

    place = device or ("cuda" if torch.cuda.is_available() else "cpu")

    with loading(weights) as source:
        tokenizer = load_tokenizer(source)
        model = load_model(getattr(transformers, auto), source, head_may_be_new=auto == "AutoModel")
        check_vocabulary(model, tokenizer, source)
    model = to_bf16(model) if wants_bf16(precision, place) else model
    return Pretrained(accelerate(model.eval().to(place)), tokenizer, torch.device(place))


def longest_input(model: Any, tokenizer: Any) -> int:
    """Finds the longest input in tokens: what the model has positions for and its tokenizer allows."""
    import torch

    places = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if isinstance(places, torch.nn.Embedding):
        # RoBERTa's positions begin after its padding id.
        known = places.num_embeddings - (0 if places.padding_idx is None else places.padding_idx + 1)
    else:
        known = getattr(model.config, "max_position_embeddings", 512)
    return int(min(known, tokenizer.model_max_length))
