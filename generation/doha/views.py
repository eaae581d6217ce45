"""The two views of a turn that DoHA reads: all of it, and the same without its knowledge.

The knowledge stands between its marker and the first speaker's marker (or the end); no text can hold a marker. So both
views are made from the same tokens, and batches and prompts are those of any encoder-decoder.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def without_knowledge(
    ids: Tensor, mask: Tensor | None, *, knowledge_id: int, speaker_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Removes the knowledge from each row; gives the tokens left and a mask of those that are no padding [rows, width].

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
    # A stable sort moves the kept tokens to the front of each row, in their order.
    order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    return ids.gather(1, order), kept.gather(1, order)


def join_views(whole: Tensor, history: Tensor, there: Tensor) -> Tensor:
    """Joins both encodings into one tensor, which caches and beam search handle like any encoder's output.

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
    """Splits what `join_views` joined: states of all tokens, of the history, and the history's mask, equally wide."""
    size = joined.shape[2] // 2
    return joined[..., :size], joined[..., size : 2 * size], joined[..., -1] > 0
