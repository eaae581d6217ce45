"""How often intervals of an estimated rate hold the truth, by simulation: a table of research/experiments.

python -m tests.faithkit.statistics.estimate_coverage --rounds 1000
"""

import argparse
from collections.abc import Iterator

import numpy as np

from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.settings.config_files import RANDOM, UNCERTAINTY
from faithkit.statistics.prediction_powered import Verdicts, estimate_rate, inclusion_probabilities, sample_rows

DETECTORS = ("good", "middling", "over-eager", "useless")
WAYS = ("detector alone", "labels alone", "corrected by its error", "prediction-powered", "labels by uncertainty")
NUM_RESPONSES, PER_GROUP = 2000, 4


def responses(random: np.random.Generator, rate: float, detector: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws labels, a detector's scores and groups; some dialogues are worse than others."""
    index = np.arange(NUM_RESPONSES) // PER_GROUP
    own = random.beta(4 * rate, 4 * (1 - rate), NUM_RESPONSES // PER_GROUP)[index]
    truth = (random.random(NUM_RESPONSES) < own).astype(float)
    apart = {"good": 3.5, "middling": 1.6, "over-eager": 1.6, "useless": 0.0}[detector]
    seen = random.normal(truth * apart, 1)
    shift = 0.5 if detector == "over-eager" else np.log(rate / (1 - rate)) - apart**2 / 2
    return truth, 1 / (1 + np.exp(-(apart * seen + shift + (detector == "useless") * seen))), index


def one_round(
    random: np.random.Generator, rate: float, detector: str, num_labels: int, slow: bool
) -> Iterator[tuple[str, float, float]]:
    """Gives the interval of each way on the same responses."""
    truth, scores, index = responses(random, rate, detector)
    groups = [f"{group:04d}" for group in index]
    error = scores.std() / np.sqrt(len(scores))
    yield "detector alone", scores.mean() - 1.96 * error, scores.mean() + 1.96 * error
    for rule in (RANDOM, UNCERTAINTY):
        chosen, wave = sample_rows(
            scores, np.zeros(len(truth), bool), num_labels, rule, seed=int(random.integers(2**31))
        )
        labels = np.full(len(truth), np.nan)
        labels[chosen] = truth[chosen]
        rows = Verdicts.of(scores, labels, groups, inclusion_probabilities([wave], scores))
        found = estimate_rate(rows).metric
        yield ("prediction-powered" if rule == RANDOM else "labels by uncertainty"), found.low, found.high
        if rule == UNCERTAINTY:
            continue
        alone = estimate_rate(rows, power=0.0).metric
        yield "labels alone", alone.low, alone.high
        if slow and 0 < truth[chosen].sum() < num_labels:
            called = scores > 0.5
            judge = JudgeError.of_rows(truth[chosen], called[chosen], [groups[row] for row in chosen])
            metric = corrected_rate(called.astype(float), groups, judge, num_resamples=400).metric
            if metric is not None:
                yield "corrected by its error", metric.low, metric.high


def coverage(
    rate: float, detector: str, num_labels: int, *, rounds: int, seed: int = 0, slow: bool = False
) -> dict[str, tuple[float, float, int]]:
    """Gives each way's share of intervals that hold the rate, their mean width, and in how many rounds it had one."""
    random = np.random.default_rng(seed)
    held: dict[str, list[tuple[bool, float]]] = {}
    for _ in range(rounds):
        for way, low, high in one_round(random, rate, detector, num_labels, slow):
            held.setdefault(way, []).append((low <= rate <= high, high - low))
    return {way: (*np.mean(found, axis=0).tolist(), len(found)) for way, found in held.items()}


def main() -> None:
    """Prints the table in markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    print(f"| rate | detector | labels | {' | '.join(WAYS)} |\n|{' --- |' * (3 + len(WAYS))}")
    for rate in (0.1, 0.3):
        for detector in DETECTORS:
            for num_labels in (20, 50, 200):
                found = coverage(rate, detector, num_labels, rounds=rounds, slow=True)
                cells = []
                for way in WAYS:
                    share, width, count = found.get(way, (np.nan, np.nan, 0))
                    of = "" if count == rounds else f"; {count} of {rounds}"
                    cells.append(f"{100 * share:.1f} ({100 * width:.0f}{of})")
                print(f"| {rate} | {detector} | {num_labels} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
