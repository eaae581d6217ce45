"""Span supervision: an auxiliary token-level loss on the parts of a response that annotators marked as unsupported.

From one label per response a critic needs many examples to learn which words are unsupported. If spans are annotated, a
linear layer predicts for each response token from its hidden state h(t) whether a span covers it:

    loss = label loss + model.span_weight * mean over response tokens of BCE(v h(t) + c, marked(t)).

where h(t) is the state before the encoder's last layer: the critic's head reads the first token, which attends to the
other tokens' states of that layer. (With the last layer's states the token loss is as low, and the critic is worse.)

Use it with training rows that have spans: RAGTruth, XSum's token labels, the embedded corpus. Responses without
annotation do not count, and an annotated faithful response has no marked token. The linear layer is used only in
training and is not exported.

| Relative                        | Use it for                                                                    |
|---------------------------------|-------------------------------------------------------------------------------|
| `critic.losses.overlap_supervision` | rows without spans: lexical overlap |
| `critic.losses.tag_loss.token_loss` | a tagger, which predicts the class of each token |

>>> import torch
>>> from critic.losses.span_supervision import span_loss
>>> marks = torch.tensor([[-1, -1, 0, 1]])  # two unannotated positions, a supported token, an unsupported token
>>> round(float(span_loss(torch.zeros(1, 4), marks, num_tokens=torch.tensor(2), world_size=1)), 4)
0.6931
"""

import torch.nn.functional as F
from torch import Tensor


def marked_tokens(marks: Tensor, index: Tensor) -> Tensor:
    """Removes padding rows (index -1) from marks [rows, width]."""
    return marks.masked_fill((index < 0)[:, None], -1)


def span_loss(logits: Tensor, marks: Tensor, *, num_tokens: Tensor, world_size: int) -> Tensor:
    """Computes the mean binary cross-entropy over the annotated tokens of the whole batch, scaled as `overlap_loss`.

    Args:
        logits: [rows, width].
        marks: 1 if a span covers the token, 0 if none does, -1 without annotation [rows, width].
        num_tokens: Annotated tokens in the whole batch, over all processes.
    """
    counted = marks >= 0
    total = F.binary_cross_entropy_with_logits(logits.float()[counted], marks[counted].float(), reduction="sum")
    return total * (world_size / num_tokens.clamp(min=1))
