"""The loss of a tagger: cross-entropy of each token's tag, where corpora with and without types may be mixed."""

import torch
import torch.nn.functional as F
from torch import Tensor

from faithkit.span_types import SPAN_LABELS, UNTYPED

UNTYPED_TAG = SPAN_LABELS.index(UNTYPED) + 1


def token_loss(
    logits: Tensor,
    tags: Tensor,
    *,
    num_tokens: Tensor | int,
    world_size: int,
    positive_weight: float = 1.0,
    focal_gamma: float = 0.0,
) -> Tensor:
    """Averaged over the tokens of the whole batch, of which this process has a share (see `critic.module.batch_loss`).

    A hallucinated token without a type, and every one under a head without types, asks for all types together.

    Args:
        logits: [tokens, classes]: outside, then hallucinated or its types.
        tags: Outside 0, a type from 1, untyped, or below 0 where nothing is known [tokens].
        num_tokens: Tokens with a tag in the whole batch, over all processes.
        positive_weight: Of hallucinated tokens, beside 1 of the others.
        focal_gamma: Above 0, tokens that are surely right count less (Lin et al. 2017, equation 4).
    """
    counted = tags >= 0
    tags, log_probs = tags[counted], F.log_softmax(logits.float()[counted], dim=1)
    wrong = log_probs[:, 1:].logsumexp(1)
    untyped = (tags == UNTYPED_TAG) | (logits.shape[1] == 2)
    typed = log_probs.gather(1, torch.where(untyped, 0, tags)[:, None])[:, 0]
    own = torch.where(tags == 0, log_probs[:, 0], torch.where(untyped, wrong, typed))
    weight = torch.where(tags > 0, positive_weight, 1.0)
    if focal_gamma:
        weight = weight * (1 - own.exp()).clamp(min=1e-6) ** focal_gamma
    return -(weight * own).sum() * (world_size / num_tokens)
