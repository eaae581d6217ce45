"""The tagger's loss: cross-entropy of each token's tag, for corpora with and without types."""

import torch
import torch.nn.functional as F
from torch import Tensor

from data_modules.encoding.offsets import UNTYPED_TAG


def token_loss(
    logits: Tensor,
    tags: Tensor,
    *,
    num_tokens: Tensor | int,
    world_size: int,
    positive_weight: float = 1.0,
    focal_gamma: float = 0.0,
) -> Tensor:
    """Computes the mean cross-entropy of tags over the tokens of the whole batch.

    Use it for responses with annotated spans, with types, without types, or mixed:

        loss = world_size / num_tokens * sum over tokens of -w (1 - p)^g log p,

    where p is the probability of the token's tag, w is `positive_weight` for hallucinated tokens and 1 for others,
    and g is
    `focal_gamma`. For a hallucinated token without a type p is the sum over all types. The sum of a process is
    scaled as
    in `critic.losses.sequence_loss.batch_loss`.

    | Relative                       | Use it for                                                               |
    |--------------------------------|--------------------------------------------------------------------------|
    | `critic.losses.sequence_loss.batch_loss` | one label for the whole response |
    | `critic.losses.overlap_supervision`   | few annotations: an additional auxiliary task |
    | `positive_weight` above 1      | rare spans, if a missed span costs more than a false alarm |
    | `focal_gamma` above 0          | rare spans, if easy tokens dominate the loss |

    >>> import torch
    >>> from critic.losses.tag_loss import token_loss
    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> tags = torch.tensor([0, 1, -1])  # outside, hallucinated, unknown
    >>> round(float(token_loss(logits, tags, num_tokens=2, world_size=1)), 4)
    0.3709

    Args:
        logits: [tokens, classes]: outside, then hallucinated or its types.
        tags: 0 outside, a type from 1, untyped, or negative without annotation [tokens].
        num_tokens: Tokens with a tag in the whole batch, over all processes.
        positive_weight: Weight of hallucinated tokens.
        focal_gamma: Above 0, confidently correct tokens have less weight (Lin et al. 2017, equation 4).
    """
    counted = tags >= 0
    tags, log_probs = tags[counted], F.log_softmax(logits.float()[counted], dim=1)
    hallucinated = log_probs[:, 1:].logsumexp(1)
    untyped = (tags == UNTYPED_TAG) | (logits.shape[1] == 2)
    typed = log_probs.gather(1, torch.where(untyped, 0, tags)[:, None])[:, 0]
    log_prob = torch.where(tags == 0, log_probs[:, 0], torch.where(untyped, hallucinated, typed))
    weight = torch.where(tags > 0, positive_weight, 1.0)
    if focal_gamma:
        weight = weight * (1 - log_prob.exp()).clamp(min=1e-6) ** focal_gamma
    return -(weight * log_prob).sum() * (world_size / num_tokens)
