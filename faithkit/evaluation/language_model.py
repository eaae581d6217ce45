"""How well a language model foretells the responses: loss, perplexity, the tokens that it would have chosen."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faithkit.evaluation.intervals import Groups, Scored, Statistic, Values, bootstrap
from faithkit.records import Example

LARGEST_LOSS = 80.0  # whose exponential is still a number that can be written


def language_model_statistic(groups: Groups, rows: NDArray[np.float64]) -> Statistic:
    """Means over tokens, not over responses.

    Args:
        rows: For each response the sum of its tokens' losses, their number, and how many were the likeliest [rows, 3].
    """
    sums = groups.sums(rows)

    def statistic(weights: Values) -> dict[str, Values]:
        losses, tokens, right = (weights @ sums).T
        loss = losses / tokens
        return {"loss": loss, "perplexity": np.exp(np.minimum(loss, LARGEST_LOSS)), "token_accuracy": right / tokens}

    return statistic


def language_model_metrics(
    examples: Sequence[Example], rows: NDArray[np.float64], *, num_resamples: int = 1000
) -> Scored:
    """loss, perplexity and token_accuracy with intervals over groups; `rows` as for `language_model_statistic`."""
    groups = Groups.of(example.group for example in examples)
    return bootstrap(groups, language_model_statistic(groups, rows), num_resamples=num_resamples)
