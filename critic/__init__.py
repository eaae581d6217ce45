"""Hallucination detectors: the sequence critic labels a response, the tagger marks its unsupported characters.

from critic import Critic, Tagger
Critic.load("runs/...").score(knowledge="...", response="...")
Tagger.load("runs/...").predict(knowledge="...", response="...", history=["..."])
"""

from typing import Any


def __getattr__(name: str) -> Any:  # torch loads only when a detector is really used
    if name == "Critic":
        from critic.sequence.scorer import Critic

        return Critic
    if name == "Tagger":
        from critic.tagger.predictor import Tagger

        return Tagger
    raise AttributeError(f"module 'critic' has no attribute {name!r}")
