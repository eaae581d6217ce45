"""Loss, perplexity and token accuracy of a language model on given responses.

loss = sum of -log p(token) / number of tokens; perplexity = exp(loss); token accuracy is the share of tokens that were
the most likely ones. Use them to choose among checkpoints of one model. Perplexities of different tokenizers are not
comparable, and none of the three measures how faithful the model's responses are.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from faithkit.records import Example
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import COST, SIMILARITY, MetricKind
from faithkit.statistics.spread import Statistic, Values

LARGEST_LOSS = 80.0  # its exponential is still a finite number
KINDS: Mapping[str, MetricKind] = {"loss": COST, "perplexity": COST, "token_accuracy": SIMILARITY}


def language_model_statistic(groups: Groups, rows: NDArray[np.float64]) -> Statistic:
    """Makes a statistic of means over tokens, not over responses.

    Args:
        rows: For each response the sum of its tokens' losses, their number, and how many were most likely [rows, 3].
    """
    sums = groups.sums(rows)

    def statistic(weights: Values) -> dict[str, Values]:
        losses, tokens, right = (weights @ sums).T
        loss = losses / tokens
        return {"loss": loss, "perplexity": np.exp(np.minimum(loss, LARGEST_LOSS)), "token_accuracy": right / tokens}

    return statistic


def language_model_metrics(
    examples: Sequence[Example], rows: NDArray[np.float64], *, num_resamples: int = 1000
) -> ScoredMetrics:
    """Computes loss, perplexity and token_accuracy with intervals; `rows` as for `language_model_statistic`."""
    groups = Groups.of(example.group for example in examples)
    return bootstrap(groups, language_model_statistic(groups, rows), kinds=KINDS, num_resamples=num_resamples)
