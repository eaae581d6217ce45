"""Reads tokenised pairs window by window: a classifier's logits of each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_modules.encoding.pairs import PairEncoder
from faithkit.training.batching import plan_batches


def window_logits(
    model: Any, encoder: PairEncoder, columns: Mapping[str, Any], batch_tokens: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """A classifier's logits of every window [windows, classes], and which row each belongs to [windows]."""
    windows = encoder.windows(columns)
    logits = np.empty((len(windows), model.config.num_labels), np.float32)
    for rows in plan_batches(windows.lengths.astype(np.int32), None, batch_tokens, None):
        logits[rows] = _run(model, encoder.collate_windows(columns, windows.take(rows)))
    return logits, windows.row


@torch.inference_mode()
def _run(model: Any, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    device = model.device
    inputs = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
    if bool(inputs["attention_mask"].all()):
        del inputs["attention_mask"]  # nothing is masked: attention takes its faster way
    return model(**inputs).logits.float().cpu().numpy()
