"""Runs a tagger over the windows of long texts, and selects one window's logits for each response token.

A token in several windows gets the logits of the window with the lowest log-odds of hallucinated: it is supported if
the context of one window supports it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_modules.encoding.encoder import MODEL_INPUTS
from data_modules.encoding.span_encoder import SpanEncoder
from faithkit.fast import Batch, Packing, first_position, places_between, plan_answers, run_batches


def run_model(model: Any, batch: Mapping[str, Tensor], **options: Any) -> Any:
    """Runs the model on all windows, padded or packed."""
    inputs: dict[str, Any] = {name: batch[name] for name in MODEL_INPUTS if name in batch}
    if "window_lengths" in batch:
        inputs["position_ids"] = batch["position_ids"] + first_position(model)
        inputs["packing"] = Packing.of(batch["window_lengths"].tolist(), batch["input_ids"].device)
    elif bool(batch["attention_mask"].all()):
        del inputs["attention_mask"]  # without a mask attention uses a faster kernel
    return model(**inputs, **options)


def answer_places(batch: Mapping[str, Tensor]) -> Tensor:
    """Returns the positions of all answer tokens in the flattened batch, in the order of `token`."""
    return places_between(*batch["bounds"].unbind(1)[2:])


def log_odds(logits: Tensor) -> Tensor:
    """Computes the log-odds of hallucinated over all types: [tokens, classes] to [tokens]."""
    return logits[:, 1:].logsumexp(1) - logits[:, 0]


def exact_log_odds(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Computes the log-odds of hallucinated in fp64, the precision of calibrations and thresholds."""
    values = logits.astype(np.float64)
    return np.logaddexp.reduce(values[:, 1:], axis=1) - values[:, 0]


def best_windows(odds: Tensor, token: Tensor, num_tokens: int) -> Tensor:
    """Finds the position of each token with the lowest log-odds of hallucinated, the first of equal ones.

    Args:
        odds: Log-odds of hallucinated at each position.
        token: The token at each position.
    """
    if len(token) == num_tokens:
        return torch.argsort(token)
    least = odds.new_full((num_tokens,), torch.inf).scatter_reduce(0, token, odds, "amin")  # [tokens]
    # NaN counts as lowest, so that it reaches the loss, which stops the training.
    is_best = (odds == least[token]) | odds.isnan()  # [positions]
    place = torch.where(is_best, torch.arange(len(token), device=token.device), len(token))
    return torch.full_like(place[:num_tokens], len(token)).scatter_reduce(0, token, place, "amin")  # [tokens]


def token_logits(
    model: Any, encoder: SpanEncoder, columns: Mapping[str, Any], batch_tokens: int
) -> NDArray[np.float32]:
    """Computes the logits of each response token in its best window [tokens, classes]; NaN for a token in no window.

    Args:
        columns: Columns of `SpanEncoder`.
        batch_tokens: Tokens of a batch; windows of similar lengths are batched together.
    """
    windows, tokens = encoder.windows(columns), [np.zeros(0, np.int64)]

    def run(rows: Batch) -> Tensor:
        batch = encoder.collate_windows(columns, windows.take(np.sort(rows)))
        tokens.append(batch["token"])
        return _answer_logits(model, {name: torch.from_numpy(array) for name, array in batch.items()})

    none = np.zeros((0, model.config.num_labels), np.float32)
    read = np.concatenate([none, *(part for _, part in run_batches(windows.lengths, batch_tokens, run))])
    odds, token = (torch.from_numpy(each) for each in (exact_log_odds(read), np.concatenate(tokens)))
    best = best_windows(odds, token, len(columns["start"].values)).numpy()  # places in `read` [positions, classes]
    return np.concatenate([read, np.full_like(read, np.nan, shape=(1, read.shape[1]))])[best]


def _answer_logits(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Computes the logits of the answers' tokens [positions, classes]."""
    places, stretches, inputs = answer_places(batch), None, dict(batch)
    if "window_lengths" in batch:
        size = batch["window_lengths"]
        begin, end = batch["bounds"].unbind(1)[2:]
        row = size.cumsum(0) - size
        filled, stretches = plan_answers(model, batch, size, begin - row, end - row)
        inputs = filled if stretches else inputs
    # The lengths stay on the CPU, where they are read.
    inputs = {name: side if name == "window_lengths" else side.to(model.device) for name, side in inputs.items()}
    if stretches:
        logits: Tensor = run_model(model, inputs, stretches=stretches).logits
        return logits[0, : len(places)]
    logits = run_model(model, inputs).logits.flatten(0, 1)
    return logits[places.to(logits.device)]
