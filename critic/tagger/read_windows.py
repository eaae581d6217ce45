"""Reads tokenised texts window by window, and gives each response token the logits of its best window.

A token that stands in several windows takes the logits of the window with the lowest log-odds of hallucinated: one
window whose context supports the token is enough.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from critic.tagger.forward import answer_places, exact_log_odds, run_model
from data_modules.encoding.spans import SpanEncoder
from faithkit.training.batching import plan_batches


def token_logits(
    model: Any, encoder: SpanEncoder, columns: Mapping[str, Any], batch_tokens: int
) -> NDArray[np.float32]:
    """Reads all windows of some rows and keeps the logits of each response token's best window [tokens, classes].

    A token that stands in no window has NaN.

    Args:
        columns: Columns of `SpanEncoder`.
        batch_tokens: Tokens of a batch; windows of like lengths are read together.
    """
    num_tokens = len(columns["start"].values)
    best = np.full((num_tokens, model.config.num_labels), np.nan, np.float32)
    lowest_odds = np.full(num_tokens, np.inf)
    windows = encoder.windows(columns)
    for rows in plan_batches(windows.lengths.astype(np.int32), None, batch_tokens, None):
        batch = encoder.collate_windows(columns, windows.take(np.sort(rows)))
        logits = _run(model, batch)
        keep_best(best, lowest_odds, batch["token"], exact_log_odds(logits), logits)
    return best


@torch.inference_mode()
def _run(model: Any, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Runs the model over a batch of windows; logits of the response tokens, window by window [places, classes]."""
    device = model.device
    inputs = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
    logits = run_model(model, inputs).logits.flatten(0, 1)[answer_places(inputs)]
    return logits.float().cpu().numpy()


def keep_best(
    best: NDArray[np.float32],
    lowest_odds: NDArray[np.float64],
    token: NDArray[np.int64],
    odds: NDArray[np.float64],
    logits: NDArray[np.float32],
) -> None:
    """Updates each token's best window with those of one batch.

    Of windows with equal odds the last one of a batch wins, and an earlier batch wins over a later one. The choice
    matters for typed taggers alone: equal odds may be shared out differently among the types.

    Args:
        best: Logits of each token's best window so far [tokens, classes]; written to.
        lowest_odds: Their log-odds of hallucinated [tokens]; written to.
        token: Number of the token at each place of the batch [places]; one token may stand at several places.
        odds: Log-odds of hallucinated at each place [places].
        logits: [places, classes].
    """
    # Sorts places by token, then by odds. The sort is stable and runs over the reversed places, so that of equal odds
    # the last place comes first.
    order = len(token) - 1 - np.lexsort((odds[::-1], token[::-1]))
    # The first place of each token is its best in this batch [tokens of the batch].
    first = order[np.flatnonzero(np.diff(token[order], prepend=-1))]
    better = first[odds[first] < lowest_odds[token[first]]]
    lowest_odds[token[better]] = odds[better]
    best[token[better]] = logits[better]
