"""Runs an encoder over a batch of windows, and picks one window's logits for each token of an answer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_modules.encoding.pairs import MODEL_INPUTS
from faithkit.packing import Packing


def run_model(model: Any, batch: Mapping[str, Tensor], **options: Any) -> Any:
    """The model's output for all windows, padded or packed."""
    inputs: dict[str, Any] = {name: batch[name] for name in MODEL_INPUTS if name in batch}
    if "window_lengths" in batch:
        inputs["position_ids"] = batch["position_ids"] + first_position(model)
        inputs["packing"] = Packing.of(batch["window_lengths"].tolist(), batch["input_ids"].device)
    elif bool(batch["attention_mask"].all()):
        del inputs["attention_mask"]  # nothing is masked: attention takes its faster way
    return model(**inputs, **options)


def first_position(model: Any) -> int:
    """The position id of a first token: RoBERTa counts from behind its padding id, the others from 0."""
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return 0 if padding is None else padding + 1


def answer_places(batch: Mapping[str, Tensor]) -> Tensor:
    """The places of all answer tokens in the flat batch, window by window, in the order of `token`."""
    return places_between(*batch["bounds"].unbind(1)[2:])


def places_between(begin: Tensor, end: Tensor) -> Tensor:
    """Concatenates the ranges `begin` to `end` of each window."""
    size = end - begin
    starts = torch.repeat_interleave(begin - (size.cumsum(0) - size), size)
    return starts + torch.arange(len(starts), device=begin.device)


def log_odds(logits: Tensor) -> Tensor:
    """Log-odds of hallucinated, of whatever type: [tokens, classes] to [tokens]."""
    return logits[:, 1:].logsumexp(1) - logits[:, 0]


def exact_log_odds(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log-odds of hallucinated in fp64, in which calibrations are fitted and thresholds stored."""
    values = logits.astype(np.float64)
    return np.logaddexp.reduce(values[:, 1:], axis=1) - values[:, 0]


def best_windows(odds: Tensor, token: Tensor, num_tokens: int) -> Tensor:
    """Finds each token's place with the lowest log-odds of hallucinated: of equal ones the first.

    Args:
        odds: Log-odds of hallucinated at each place.
        token: Which token stands at each place.
    """
    if len(token) == num_tokens:
        return torch.argsort(token)
    least = odds.new_full((num_tokens,), torch.inf).scatter_reduce(0, token, odds, "amin")  # [tokens]
    # Places that hold their token's least odds. NaN counts too, so that it reaches the loss, which stops the training.
    is_best = (odds == least[token]) | odds.isnan()  # [places]
    place = torch.where(is_best, torch.arange(len(token), device=token.device), len(token))
    return torch.full_like(place[:num_tokens], len(token)).scatter_reduce(0, token, place, "amin")  # [tokens]
