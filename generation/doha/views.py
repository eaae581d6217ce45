"""The two views of a turn that DoHA reads: all of it, and the same without its knowledge.

What is between the knowledge's marker and the first speaker's marker (or the end) is the knowledge; no text can hold a
marker. So both views come of the same tokens, and whoever makes batches or prompts need not know of them.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def without_knowledge(
    ids: Tensor, mask: Tensor | None, *, knowledge_id: int, speaker_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The tokens of each row that are not its knowledge, and which of them are no padding [rows, width].

    Args:
        ids: Padded at the right [rows, longer width].
        mask: 0 where a row is padded; None where none is.
    """
    place = torch.arange(ids.shape[1], device=ids.device)
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    marker = ids == knowledge_id
    begin = torch.where(marker.any(1), marker.int().argmax(1), ids.shape[1])[:, None]
    speaks = torch.isin(ids, torch.tensor(list(speaker_ids), device=ids.device)) & (place > begin)
    end = torch.where(speaks.any(1), speaks.int().argmax(1), real.sum(1) - 1)[:, None]
    kept = real & ((place < begin) | (place >= end))
    order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    return ids.gather(1, order), kept.gather(1, order)


def join_views(whole: Tensor, history: Tensor, there: Tensor) -> Tensor:
    """Both encodings side by side, as one tensor of states that caches and searches handle like any other.

    Args:
        whole: States of all tokens [rows, width, size].
        history: States of those that are not knowledge [rows, narrower width, size].
        there: Which of these are no padding [rows, narrower width].

    Returns:
        [rows, width, 2 * size + 1]; the last number is 1 for a state of the history and 0 for padding.
    """
    beside = torch.cat([history, there[..., None].to(history.dtype)], dim=2)
    return torch.cat([whole, F.pad(beside, (0, 0, 0, whole.shape[1] - history.shape[1]))], dim=2)


def split_views(joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The reverse of `join_views`, with all as wide as the states of all tokens."""
    size = joined.shape[2] // 2
    return joined[..., :size], joined[..., size : 2 * size], joined[..., -1] > 0
