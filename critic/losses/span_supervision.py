"""Span supervision: an auxiliary token-level loss on the parts of a response that annotators marked as unsupported.

A critic learns from one label a response which of its words are to blame only after many examples. Where spans are
marked, a linear layer predicts for each response token from its hidden state h(t) whether a span covers it:

    loss = label loss + model.span_weight * mean over response tokens of BCE(v h(t) + c, marked(t)).

with h(t) the state before the encoder's last layer: the critic's head reads the first token, which can only gather what
the other tokens know one layer earlier. (On the last layer's states the tokens learn as much, and the verdict lags.)

Use it where the training rows have spans: RAGTruth, XSum's token labels, the embedded corpus. Responses that nobody
marked count for nothing here, and a faithful one that was looked at has no marked token. The linear layer is used in
training alone and is not exported: what the critic judges by is its own head.

| Relative                        | Use it for                                                                    |
|---------------------------------|-------------------------------------------------------------------------------|
| `critic.losses.overlap_supervision` | rows without spans: what the words alone say of support |
| `critic.losses.tag_loss.token_loss` | a tagger, whose output the tokens' classes are                                |

>>> import torch
>>> from critic.losses.span_supervision import span_loss
>>> marks = torch.tensor([[-1, -1, 0, 1]])  # two places that nobody marked, a supported token, an unsupported one
>>> round(float(span_loss(torch.zeros(1, 4), marks, num_tokens=torch.tensor(2), world_size=1)), 4)
0.6931
"""

import torch.nn.functional as F
from torch import Tensor


def marked_tokens(marks: Tensor, index: Tensor) -> Tensor:
    """Marks with the rows that are padding (index -1) taken out [rows, width]."""
    return marks.masked_fill((index < 0)[:, None], -1)


def span_loss(logits: Tensor, marks: Tensor, *, num_tokens: Tensor, world_size: int) -> Tensor:
    """Binary cross-entropy averaged over the tokens of the whole batch that have a mark; scaled as `overlap_loss`.

    Args:
        logits: [rows, width].
        marks: 1 where a span covers the token, 0 where none does, -1 where nothing is known [rows, width].
        num_tokens: Tokens with a mark in the whole batch, over all processes.
    """
    counted = marks >= 0
    total = F.binary_cross_entropy_with_logits(logits.float()[counted], marks[counted].float(), reduction="sum")
    return total * (world_size / num_tokens.clamp(min=1))
