"""The sequence critic: P(hallucinated) of a response, given its knowledge.

from critic import Critic
critic = Critic.load("runs/...")
critic.score(knowledge="...", response="...")
"""

from typing import Any


def __getattr__(name: str) -> Any:  # torch loads only when the critic is really used
    if name == "Critic":
        from critic.scorer import Critic

        return Critic
    raise AttributeError(f"module 'critic' has no attribute {name!r}")
