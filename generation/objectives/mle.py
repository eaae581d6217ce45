"""Maximum likelihood: the mean loss of the responses' tokens."""

from torch import Tensor

from generation.objectives.objective import Objective, Step, token_mean


class Mle(Objective):
    """Cross-entropy, averaged over all tokens of a batch."""

    def forward(self, step: Step) -> Tensor:
        return token_mean(step.losses, step.real[step.batch["target_row"]], step.processes)
