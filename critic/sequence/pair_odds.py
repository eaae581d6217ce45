"""Computes the log-odds of tokenised pairs: those of the encoder, combined with word and token features."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.logistic import linear
from critic.runtime import to_inputs
from data_modules.encoding.pair_encoder import EVIDENCE, RUNS, PairEncoder
from faithkit.calibration import IS_HALLUCINATED, log_odds
from faithkit.fast import Batch, run_batches

PAIRS_AT_ONCE = 2048  # pairs that are tokenised and sorted together
# Tokens of a batch. A CPU is fastest while a layer's activations fit its cache, and small batches of similar lengths
# have the least padding; a GPU needs large batches.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65_536
Floats = NDArray[np.float64]
Columns = Mapping[str, Any]


def default_batch_tokens(model: Any) -> int:
    """Returns the tokens of a batch that suit the model's device."""
    return CPU_BATCH_TOKENS if model.device.type == "cpu" else GPU_BATCH_TOKENS


def column_odds(
    model: Any,
    encoder: PairEncoder,
    columns: Mapping[str, Any],
    weights: Sequence[float] = (),
    *,
    batch_tokens: int,
    hallucinated: Sequence[bool] = IS_HALLUCINATED,
) -> Floats:
    """Computes the log-odds of hallucinated of each pair from its tokens, the columns of the encoder [rows].

    Args:
        weights: Of the evidence features; empty takes the log-odds of the model alone.
        hallucinated: For each class of the model, whether it means hallucinated.
    """
    features = compute_features(
        model,
        encoder,
        columns,
        batch_tokens=batch_tokens,
        hallucinated=hallucinated,
        with_odds=not weights or weights[0] != 0,
        with_evidence=bool(weights),
    )
    return linear(features, tuple(weights)) if weights else features[:, 0]


def window_logits(
    model: Any, encoder: PairEncoder, columns: Mapping[str, Any], batch_tokens: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Computes the logits of every window [windows, classes], and the row that each belongs to [windows]."""
    windows = encoder.windows(columns)

    def run(rows: Batch) -> Tensor:
        batch = encoder.collate_windows(columns, windows.take(rows))
        found: Tensor = model(**to_inputs(batch, model, can_pack=True)).logits
        return found

    logits = np.empty((len(windows), model.config.num_labels), np.float32)
    for rows, part in run_batches(windows.lengths, batch_tokens, run):
        logits[rows] = part
    return logits, windows.row


def encode_ahead(encode: Callable[[slice], Columns], count: int, device: torch.device) -> Iterator[Columns]:
    """Yields the columns of `count` rows chunk by chunk; while a GPU computes one chunk, a thread encodes the next."""
    chunks = [slice(begin, begin + PAIRS_AT_ONCE) for begin in range(0, count, PAIRS_AT_ONCE)]
    if device.type == "cpu" or len(chunks) < 2:
        yield from map(encode, chunks)
        return
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(encode, chunks[0])
        for chunk in chunks[1:]:
            columns, following = following.result(), thread.submit(encode, chunk)
            yield columns
        yield following.result()


def compute_features(
    model: Any,
    encoder: PairEncoder,
    columns: Mapping[str, Any],
    *,
    batch_tokens: int,
    hallucinated: Sequence[bool] = IS_HALLUCINATED,
    with_odds: bool = True,
    with_evidence: bool = True,
) -> Floats:
    """Computes the features [rows, features]: log-odds, words, character runs, weakest tokens.

    Args:
        columns: Of the encoder, whose settings select the features.
        with_odds: Runs the model for the log-odds, the lowest over a pair's windows; false leaves them at 0, for a
            critic that gives them no weight.
        with_evidence: Computes the other features too.
    """
    odds = np.zeros(len(columns["response"]))
    if with_odds:
        odds.fill(np.inf)
        logits, owner = window_logits(model, encoder, columns, batch_tokens)
        np.minimum.at(odds, owner, log_odds(logits, hallucinated))
    features = [odds]
    if not with_evidence:
        return odds[:, None]
    if encoder.evidence:
        features += [np.asarray(columns[name], np.float64) for name in EVIDENCE]
    if encoder.whole:
        from critic.token_support import SECOND_TO_LAST, TokenSupport  # few critics need it

        options: dict[str, Any] = {"batch_tokens": batch_tokens, "max_windows": encoder.max_windows}
        support = TokenSupport(model, encoder.tokenizer, layer=SECOND_TO_LAST, **options)
        features += [np.asarray(columns[RUNS], np.float64), support.weakest(columns)]
    return np.stack(features, axis=1)
