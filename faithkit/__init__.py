"""Trains and evaluates hallucination detectors and faithful generators.

from faithkit import Critic, Generator, Judge, Tagger, assert_faithful, check
check(knowledge="...", response="...")
Critic.load("runs/...").score(knowledge="...", response="...")
Tagger.load("runs/...").predict(knowledge="...", response="...")
Generator.load("runs/...").reply(knowledge="...", history=["..."])
Judge.load("runs/...").judge(knowledge="...", response="...")
assert_faithful(knowledge="...", response="...")

from faithkit import runs
runs.to_pandas("runs/*")
"""

from importlib import import_module
from typing import Any

__all__ = ["Cascade", "Critic", "Generator", "Judge", "Tagger", "assert_faithful", "check", "read_pairs"]
# Imported on first use; __init__.pyi declares the same names for type checkers.
_PUBLIC = {
    "Cascade": "faithkit_workflows.detectors.cascade",
    "Critic": "critic.sequence.scorer",
    "Generator": "generation.generator",
    "Judge": "judge.judge",
    "Tagger": "critic.tagger.predictor",
    "assert_faithful": "faithkit_workflows.detectors.assertions",
    "check": "faithkit_workflows.detectors.assertions",
    "read_pairs": "data_modules.datasets.pairs",
}


def __getattr__(name: str) -> Any:  # torch loads only when a class is really used
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'faithkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
