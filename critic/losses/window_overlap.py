"""Targets of overlap supervision (`critic.losses.overlap_supervision`) for batches of windows."""

import torch
from torch import Tensor


def answer_overlap(vectors: Tensor, ids: Tensor, bounds: Tensor) -> Tensor:
    """The overlap of each answer token with the context of its window, from 0 to 1, window by window.

    Args:
        vectors: Static word vectors of length 1 [vocabulary, hidden].
        ids: Token ids of all places of the batch [places].
        bounds: Where the context and the answer of each window begin and end [windows, 4].
    """
    parts = []
    for context_begin, context_end, answer_begin, answer_end in bounds.tolist():
        answer = vectors[ids[answer_begin:answer_end]]  # [tokens, hidden]
        if context_begin == context_end:
            parts.append(answer.new_zeros(len(answer)))
            continue
        context = vectors[ids[context_begin:context_end]]  # [context tokens, hidden]
        parts.append((answer @ context.T).amax(1).clamp(0, 1))
    return torch.cat(parts)
