"""Overlap supervision, the support loss: an auxiliary task that teaches an encoder to look across a pair.

Use it where labels are few or the encoder has only seen single texts: a thousand labelled pairs do not teach an encoder
of sentences to compare two texts. The texts themselves say much for nothing: which words of the response stand in the
knowledge. So each response token is asked how well the knowledge supports it, and its answer is the target

    support(token) = max over knowledge tokens k of cos(e(token), e(k)), clamped to 0..1,

with e the encoder's own static word embeddings: 1 for a copied word, high for a near synonym, low for a word from
elsewhere. A linear layer reads the answer off the last hidden states, which do not have it unless attention carried it
over from the knowledge; the classifier builds on what is learnt there. The layer is not exported. The loss is added to
the task's own: `label loss + model.support_weight * support loss`.

| Relative                          | Use it for                                                        |
|-----------------------------------|-------------------------------------------------------------------|
| `critic.loss.batch_loss`          | the labels of the pairs, which this loss stands beside            |
| `critic.tagger.loss.token_loss`   | tokens that annotators marked; this loss needs no marks           |
| weak labels (`data_modules.weak`) | more pairs with labels, where this one needs more tasks a pair    |

>>> import torch
>>> from critic.overlap_supervision import overlap_loss, overlap_targets, unit_vectors
>>> words = unit_vectors(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))  # padding, river, king
>>> ids, segment = torch.tensor([[1, 1, 2]]), torch.tensor([[1, 2, 2]])  # knowledge: river; response: river king
>>> targets = overlap_targets(words[ids], segment)
>>> targets[0, 1:].tolist()
[1.0, 0.0]
>>> round(float(overlap_loss(torch.zeros(1, 3), targets, segment == 2, num_tokens=torch.tensor(2), world_size=1)), 4)
0.6931
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
        """Hidden states [rows, width, hidden] to logits [rows, width]."""
        return self.head(hidden).squeeze(-1)


def unit_vectors(embeddings: Tensor) -> Tensor:
    """A table of word embeddings [vocabulary, hidden] as fixed vectors of length 1."""
    return F.normalize(embeddings.detach().float(), dim=-1)


def overlap_targets(vectors: Tensor, segment: Tensor) -> Tensor:
    """The support of every token, from 0 to 1 [rows, width]; it means something at the response's tokens only.

    Args:
        vectors: Static word vectors of length 1 [rows, width, hidden].
        segment: KNOWLEDGE, RESPONSE, or 0 for special tokens and padding [rows, width].
    """
    cosine = torch.bmm(vectors, vectors.transpose(1, 2))  # of each token with each other [rows, width, width]
    is_knowledge = (segment == KNOWLEDGE)[:, None, :]  # [rows, 1, width]
    return cosine.masked_fill(~is_knowledge, -1.0).amax(-1).clamp(0, 1)


def response_tokens(segment: Tensor, index: Tensor) -> Tensor:
    """Where the loss counts [rows, width]: the response's tokens, of rows that are no padding (index -1)."""
    return (segment == RESPONSE) & (index >= 0)[:, None]


def overlap_loss(logits: Tensor, targets: Tensor, counted: Tensor, *, num_tokens: Tensor, world_size: int) -> Tensor:
    """Binary cross-entropy averaged over the response tokens of the whole batch, of which this process has a share.

    As in `batch_loss`, a share's sum is scaled by `world_size` over the whole batch's count, so that the gradient does
    not depend on the number of processes.

    Args:
        logits: [rows, width].
        targets: Support of each token [rows, width].
        counted: Where the loss counts [rows, width].
        num_tokens: Counted tokens of the whole batch, over all processes.
    """
    total = F.binary_cross_entropy_with_logits(logits.float()[counted], targets.float()[counted], reduction="sum")
    return total * (world_size / num_tokens.clamp(min=1))
