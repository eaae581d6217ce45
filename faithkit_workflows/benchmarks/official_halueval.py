"""HaluEval as its own script runs it: `benchmark.options.official=true`.

The dataset leaves out the knowledge of questions and dialogues and takes one response of each row, by a coin of ours
with a seed (theirs has none); here a judge writes its verdict, and the report reads it as the script does.
"""

from collections.abc import Mapping
from typing import Any

from judge.asking import VERDICT

HALUEVAL = "halueval"


def is_official(block: Mapping[str, Any]) -> bool:
    """Tells whether a benchmark's block asks for it."""
    return HALUEVAL in (block["name"], block.get("dataset")) and block["options"].get("official") is True


def as_official(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gives a configuration in which a language model's verdict is written, where it would be weighed."""
    judge = config.get("judge") or {}
    if not is_official(config["benchmark"]) or judge.get("ask") != VERDICT:
        return config
    return {**config, "judge": {**judge, "written": True}}
