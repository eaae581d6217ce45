"""Maximum likelihood: the mean loss of the responses' tokens."""

from torch import Tensor

from faithkit.training.language_model import token_mean
from generation.objectives.objective import Objective, Step


class Mle(Objective):
    """Averages the cross-entropy over all response tokens of a batch.

    Use it first, and with clean responses: the other objectives build on it. It also learns hallucinations in the
    responses.

        L = -1/T * sum_t log p(y_t | y_<t, knowledge, history)        T tokens in the whole batch

    | related | differs in | use it when |
    | --- | --- | --- |
    | `LossTruncation` | leaves out the responses with the highest loss | some responses are unsupported |
    | `InfoNce` | also contrasts responses with negatives | there are unfaithful responses |
    | `control=ctrl` | adds control tokens to the input | faithfulness is controlled in decoding |

    Example:
        >>> from generation.objectives.mle import Mle
        >>> from generation.objectives.objective import Step
        >>> step = Step.of_losses([[1.0, 2.0, 3.0], [10.0]])  # the losses of two responses' tokens
        >>> Mle()(step).item()
        4.0

    On the command line: `faithkit train model=t5 objective=mle` (the default).
    """

    def forward(self, step: Step) -> Tensor:
        return token_mean(step.losses, step.real[step.batch["target_row"]], step.processes)
