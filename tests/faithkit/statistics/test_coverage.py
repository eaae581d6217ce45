"""Measures by simulation how often 95% intervals hold the truth, for every classification metric: 93 to 97% is the aim.

`python -m tests.faithkit.statistics.test_coverage 1000` prints the table (research/experiments/statistics.md keeps it).
"""

import sys

import numpy as np
import pytest

from faithkit.metrics.classification import Outcomes, classification_metrics, classification_statistic
from faithkit.statistics.bootstrap import Groups

METRICS = (
    *("macro_f1", "f1", "precision", "recall", "accuracy", "balanced_accuracy"),
    *("auroc", "average_precision", "ece_debiased", "brier"),
)
GROUPS = (20, 60, 500)


def draw(num_groups: int, generator: np.random.Generator, base_rate: float) -> Outcomes:
    """Dialogues of one to six responses that have something in common, judged by an overconfident detector."""
    index = np.repeat(np.arange(num_groups), generator.integers(1, 7, num_groups))
    size = len(index)
    truth = np.log(base_rate / (1 - base_rate)) + generator.normal(0, 0.8, num_groups)[index]
    truth += generator.normal(0, 1.2, size)
    gold = generator.random(size) < 1 / (1 + np.exp(-truth))
    judged = 1.6 * truth + 0.5 + generator.normal(0, 0.6, num_groups)[index] + generator.normal(0, 1, size)
    scores = 1 / (1 + np.exp(-judged))
    return Outcomes(
        gold=gold.astype(np.int8),
        called=(scores >= 0.5).astype(np.int8),
        scores=scores,
        groups=Groups(index, num_groups),
    )


def coverage(num_groups: int, base_rate: float, *, num_draws: int, num_resamples: int) -> dict[str, float]:
    """The share of draws whose interval holds the value of a very large population."""
    population = draw(200_000, np.random.default_rng(0), base_rate)
    truth = {name: value for name, [value] in classification_statistic(population)(np.ones((1, 200_000))).items()}
    truth["ece_debiased"] = truth["ece"]
    generator = np.random.default_rng(num_groups)
    held: dict[str, list[bool]] = {name: [] for name in METRICS}
    for _ in range(num_draws):
        found = classification_metrics(draw(num_groups, generator, base_rate), num_resamples=num_resamples).metrics
        for name in METRICS:
            if name in found:
                held[name].append(found[name].low <= truth[name] <= found[name].high)
    return {name: float(np.mean(hits)) for name, hits in held.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_groups", "base_rate", "metrics"),
    [*((groups, 0.3, METRICS) for groups in GROUPS), (20, 0.08, ("accuracy", "ece_debiased", "brier"))],
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    num_groups: int, base_rate: float, metrics: tuple[str, ...]
) -> None:
    found = coverage(num_groups, base_rate, num_draws=400, num_resamples=200)
    for name in metrics:
        share = found[name]
        # Three standard errors of 400 draws around the aim.
        assert 0.93 - 0.033 <= share <= 0.97 + 0.026, f"{name}: {share:.3f}"


def main() -> None:
    """Prints the table."""
    draws = int(sys.argv[1])
    print("| share hallucinated | groups | " + " | ".join(METRICS) + " |")
    print("| --- " * (len(METRICS) + 2) + "|")
    for base_rate in (0.3, 0.08):
        for num_groups in GROUPS:
            found = coverage(num_groups, base_rate, num_draws=draws, num_resamples=300)
            cells = " | ".join(f"{100 * found[name]:.1f}" for name in METRICS)
            print(f"| {base_rate} | {num_groups} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
