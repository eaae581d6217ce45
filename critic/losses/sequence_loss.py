"""The critic's loss: cross-entropy of two classes with targets that may lie between 0 and 1."""

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_loss(logits: Tensor, targets: Tensor, *, num_rows: int, world_size: int, label_smoothing: float) -> Tensor:
    """Computes the mean cross-entropy with soft targets over the whole batch.

    Use it for labelled pairs, for weak labels with a probability, and for mixtures of both:

        loss = world_size / num_rows * sum over rows of -(1 - t) log p(faithful) - t log p(hallucinated),

    where t is the row's target after label smoothing, (1 - s) t + s / 2. Processes average their gradients, so the
    sum of
    each process is scaled by `world_size / num_rows`: the gradient equals that of one process with all rows. Rows
    without a target (padding, no label) do not count.

    | Relative                            | Use it for                                                   |
    |-------------------------------------|--------------------------------------------------------------|
    | `critic.losses.overlap_supervision`        | few labels: an additional auxiliary task for every token |
    | `critic.losses.tag_loss.token_loss`     | labels of tokens instead of one for the response             |
    | `torch.nn.BCEWithLogitsLoss`        | the same for models of one logit                             |

    >>> import torch
    >>> from critic.losses.sequence_loss import batch_loss
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 9.0]])
    >>> targets = torch.tensor([0.0, 0.5, torch.nan])  # faithful, undecided, no label
    >>> round(float(batch_loss(logits, targets, num_rows=2, world_size=1, label_smoothing=0.0)), 4)
    0.41

    Args:
        logits: [rows, classes].
        targets: P(hallucinated) [rows]; NaN or negative without a target.
        num_rows: Rows of the whole batch, over all processes.
    """
    counted = targets >= 0  # false of NaN
    hallucinated = targets[counted].float()
    distribution = torch.stack([1 - hallucinated, hallucinated], dim=1)
    total = F.cross_entropy(logits.float()[counted], distribution, reduction="sum", label_smoothing=label_smoothing)
    return total * (world_size / num_rows)
