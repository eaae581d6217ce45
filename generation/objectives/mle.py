"""Maximum likelihood: the mean loss of the responses' tokens."""

from torch import Tensor

from faithkit.training.language_model import token_mean
from generation.objectives.objective import Objective, Step


class Mle(Objective):
    """Averages the cross-entropy over all response tokens of a batch.

    Use it first, and wherever the responses are clean: the other objectives build on it. It learns whatever the
    responses say, their hallucinations too.

        L = -1/T * sum_t log p(y_t | y_<t, knowledge, history)        T tokens in the whole batch

    | related | differs in | use it when |
    | --- | --- | --- |
    | `LossTruncation` | leaves out the responses with the highest loss | some responses are not supported, unmarked |
    | `InfoNce` | also contrasts responses with negatives | there are responses that were not to be given |
    | `control=ctrl` | tags each response in front of the input | faithfulness shall be asked for when decoding |

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
