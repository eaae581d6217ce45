"""Models of entailment that a test can count on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Words:
    """Reads entailment off a response: `yes` in it is entailment, `no` contradiction, anything else neutral."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        self.asked += zip(premises, hypotheses, strict=True)
        rows = {True: [0.8, 0.1, 0.1], False: [0.1, 0.8, 0.1]}
        found = [rows["yes" in said.split()] if "no" not in said.split() else [0.0, 0.1, 0.9] for said in hypotheses]
        return np.array(found).reshape(-1, 3)


def refuse(name: str) -> Words:
    """Fails when it is asked."""
    raise AssertionError(f"{name} is loaded again")


class Bits:
    """By the length of a response, all three classes."""

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        return np.eye(3)[[len(said) % 3 for said in hypotheses]]


def bits(name: str) -> Bits:
    return Bits()
