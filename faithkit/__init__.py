"""Train and measure what holds language models to their sources.

from faithkit import Critic, Generator, Judge, Tagger, assert_faithful
Critic.load("runs/...").score(knowledge="...", response="...")
Tagger.load("runs/...").predict(knowledge="...", response="...")
Generator.load("runs/...").reply(knowledge="...", history=["..."])
Judge.load("runs/...").judge(knowledge="...", response="...")
assert_faithful(knowledge="...", response="...", by="runs/...")

from faithkit import runs
runs.to_pandas("runs/*")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; at run time a name is imported when it is first used
    from critic.sequence.scorer import Critic
    from critic.tagger.predictor import Tagger
    from data_modules.datasets.pairs import read_pairs
    from faithkit_workflows.detectors.assertions import assert_faithful
    from faithkit_workflows.detectors.cascade import Cascade
    from generation.generator import Generator
    from judge.judge import Judge

__all__ = ["Cascade", "Critic", "Generator", "Judge", "Tagger", "assert_faithful", "read_pairs"]
# The one place where the ground names what stands on it; imports run one way everywhere else.
_PUBLIC = {
    "Cascade": "faithkit_workflows.detectors.cascade",
    "Critic": "critic.sequence.scorer",
    "Generator": "generation.generator",
    "Judge": "judge.judge",
    "Tagger": "critic.tagger.predictor",
    "assert_faithful": "faithkit_workflows.detectors.assertions",
    "read_pairs": "data_modules.datasets.pairs",
}


def __getattr__(name: str) -> Any:  # torch loads only when a class is really used
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'faithkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
