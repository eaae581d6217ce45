"""The tagger's loss: cross-entropy of each token's tag, where corpora with and without types may be mixed."""

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
    """Cross-entropy of tags, averaged over the tokens of the whole batch, of which this process has a share.

    Use it for responses whose spans are marked, with types, without, or mixed:

        loss = world_size / num_tokens * sum over tokens of -w (1 - p)^g log p,

    with p the probability of the token's own tag, w `positive_weight` for hallucinated tokens and 1 for others, and g
    `focal_gamma`. A hallucinated token without a type, and every one under a head without types, asks for all types
    together: p is then the sum of theirs. The share's sum is scaled as in `critic.losses.sequence_loss.batch_loss`.

    | Relative                       | Use it for                                                               |
    |--------------------------------|--------------------------------------------------------------------------|
    | `critic.losses.sequence_loss.batch_loss` | one label for the whole response |
    | `critic.losses.overlap_supervision`   | few marks: an auxiliary task beside this one                             |
    | `positive_weight` above 1      | rare marks, where missing one costs more than a false alarm              |
    | `focal_gamma` above 0          | rare marks, where easy tokens outweigh the hard ones                     |

    >>> import torch
    >>> from critic.losses.tag_loss import token_loss
    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> tags = torch.tensor([0, 1, -1])  # outside, hallucinated, unknown
    >>> round(float(token_loss(logits, tags, num_tokens=2, world_size=1)), 4)
    0.3709

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
