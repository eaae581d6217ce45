"""Auxiliary losses of the tokens of a response: overlap supervision and span supervision.

Overlap supervision is a regression of lexical overlap, computed with static embeddings. Each response token has a
target that needs no annotation, its similarity to the most similar knowledge token:

    overlap(t) = max over knowledge tokens k of cos(e(t), e(k)), clamped to [0, 1],

where e are the encoder's word embeddings before training (without context). The overlap is 1 for a copied word, high
for a near synonym, and low for a word that is missing from the knowledge. A linear layer predicts it from the token's
last hidden state h(t), with binary cross-entropy (BCE) on soft targets, in addition to the task's loss:

    loss = label loss + model.support_weight * mean over response tokens of BCE(w h(t) + b, overlap(t)).

Use it with few labels, or with an encoder that was pretrained on single texts: a thousand labelled pairs do not teach
such an encoder to compare two texts, and the hidden state of a response token can only predict the overlap if attention
has compared it with the knowledge. The linear layer is used only in training and is not exported.

Span supervision predicts which parts of a response annotators marked as unsupported. From one label per response a
critic needs many examples to learn which words are unsupported. If spans are annotated, a linear layer predicts for
each response token from its hidden state h(t) whether a span covers it:

    loss = label loss + model.span_weight * mean over response tokens of BCE(v h(t) + c, marked(t)).

where h(t) is the state before the encoder's last layer: the critic's head reads the first token, which attends to the
other tokens' states of that layer. (With the last layer's states the token loss is as low, and the critic is worse.)

Use it with training rows that have spans: RAGTruth, XSum's token labels, the embedded corpus. Responses without
annotation do not count, and an annotated faithful response has no marked token. The linear layer is used only in
training and is not exported.

| Relative                          | Use it for                                                        |
|-----------------------------------|-------------------------------------------------------------------|
| `critic.sequence.module.batch_loss` | the labels of the pairs, the main loss |
| `critic.tagger.module.token_loss` | a tagger, which predicts the class of each token |
| weak labels (`data_modules.weak`) | more pairs with labels, where these losses need more tasks a pair |

>>> import torch
>>> from critic.auxiliary_losses import auxiliary_loss, overlap_targets
>>> words = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # padding, river, king
>>> ids, segment = torch.tensor([[1, 1, 2]]), torch.tensor([[1, 2, 2]])  # knowledge: river; response: river king
>>> targets = overlap_targets(words[ids], segment)
>>> targets[0, 1:].tolist()
[1.0, 0.0]
>>> round(float(auxiliary_loss(torch.zeros(1, 3), targets, segment == 2, num_tokens=torch.tensor(2), world_size=1)), 4)
0.6931
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_modules.encoding.pair_encoder import KNOWLEDGE


class TokenHead(nn.Module):
    """Predicts one number for each token from its hidden state, such as its overlap; used only in training."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps hidden states [rows, width, hidden] to logits [rows, width]."""
        return self.head(hidden).squeeze(-1)


def overlap_targets(vectors: Tensor, segment: Tensor) -> Tensor:
    """Computes the overlap of every token with the knowledge, from 0 to 1 [rows, width]; used for response tokens.

    Args:
        vectors: Static word vectors of length 1 [rows, width, hidden].
        segment: KNOWLEDGE, RESPONSE, or 0 for special tokens and padding [rows, width].
    """
    cosine = torch.bmm(vectors, vectors.transpose(1, 2))  # between all tokens of a row [rows, width, width]
    is_knowledge = (segment == KNOWLEDGE)[:, None, :]  # [rows, 1, width]
    return cosine.masked_fill(~is_knowledge, -1.0).amax(-1).clamp(0, 1)


def auxiliary_loss(logits: Tensor, targets: Tensor, counted: Tensor, *, num_tokens: Tensor, world_size: int) -> Tensor:
    """Computes the mean binary cross-entropy of overlaps or marks over the counted tokens of the whole batch.

    As in `batch_loss`, the sum of a process is scaled by `world_size` over the count of the whole batch, so that the
    gradient does not depend on the number of processes.

    Args:
        logits: [rows, width].
        targets: Overlap of each token, or 1 if a span covers it, else 0 [rows, width].
        counted: Mask of the tokens in the loss [rows, width].
        num_tokens: Tokens in the loss of the whole batch, over all processes.
    """
    total = F.binary_cross_entropy_with_logits(logits.float()[counted], targets.float()[counted], reduction="sum")
    return total * (world_size / num_tokens.clamp(min=1))


def answer_overlap(vectors: Tensor, ids: Tensor, bounds: Tensor) -> Tensor:
    """Computes the overlap of each answer token with the context of its window, from 0 to 1.

    Args:
        vectors: Static word vectors of length 1 [vocabulary, hidden].
        ids: Token ids of all positions of the batch [positions].
        bounds: Begin and end of the context and of the answer in each window [windows, 4].
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
