"""The support loss: an auxiliary task that teaches an encoder to look across a pair.

A critic that learns from labels alone has one bit a pair, and a thousand labelled pairs do not teach an encoder of
single sentences to compare two texts. But the texts themselves say much for nothing: which words of the response stand
in the knowledge. So every response token is asked how well the knowledge supports it, and its answer is the target

    support(token) = max over knowledge tokens of cos(e(token), e(knowledge token)), clamped to 0..1,

with e the encoder's own static word embeddings: 1 for a copied word, high for a near synonym, low for a word that came
from elsewhere. A throw-away linear layer reads the answer off the last hidden states, which do not have it unless
attention carried it over from the knowledge; what it learns there, the classifier then builds on. The layer is not
exported.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_modules.encoding.pairs import KNOWLEDGE, RESPONSE


class OverlapHead(nn.Module):
    """Reads the support of each token off its hidden state; used in training alone."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states (rows, width, hidden) to logits (rows, width)."""
        return self.head(hidden).squeeze(-1)


def unit_vectors(embeddings: Tensor) -> Tensor:
    """A table of word embeddings (vocabulary, hidden) as fixed vectors of length 1."""
    return F.normalize(embeddings.detach().float(), dim=-1)


def overlap_targets(vectors: Tensor, segment: Tensor) -> Tensor:
    """The support of every token, from 0 to 1; it means something at the response's tokens only.

    Args:
        vectors: Static word vectors of length 1 (rows, width, hidden).
        segment: KNOWLEDGE, RESPONSE, or 0 for special tokens and padding (rows, width).
    """
    similarity = torch.bmm(vectors, vectors.transpose(1, 2))  # (rows, width of asking tokens, width of asked)
    similarity = similarity.masked_fill((segment != KNOWLEDGE)[:, None, :], -1.0)
    return similarity.amax(-1).clamp(0, 1)


def response_tokens(segment: Tensor, index: Tensor) -> Tensor:
    """Where the loss counts (rows, width): the response's tokens, of rows that are no padding (index -1)."""
    return (segment == RESPONSE) & (index >= 0)[:, None]


def overlap_loss(logits: Tensor, targets: Tensor, counted: Tensor, *, num_tokens: Tensor, world_size: int) -> Tensor:
    """Binary cross-entropy averaged over the response tokens of the whole batch, of which this process has a share.

    As in `batch_loss`, a share's sum is scaled by `world_size` over the whole batch's count, so that the gradient does
    not depend on the number of processes.

    Args:
        logits: (rows, width).
        targets: Support of each token (rows, width).
        counted: Where the loss counts (rows, width).
        num_tokens: Counted tokens of the whole batch, over all processes.
    """
    total = F.binary_cross_entropy_with_logits(logits.float()[counted], targets.float()[counted], reduction="sum")
    return total * (world_size / num_tokens.clamp(min=1))
