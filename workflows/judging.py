"""Loads a language model as judge: any model that an engine runs, or a judge of ours by its run."""

from collections.abc import Mapping
from typing import Any

from faithkit.detector import Detector
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.weights.used_model import CHECKPOINT, UsedModel, describe_model
from judge.asking import AskOptions
from judge.judge import Judge

SERVED = "what a server's model was trained on is not known"


def load_judge(config: Mapping[str, Any]) -> Detector:
    """The judge that the blocks `engine` and `judge` of a configuration name."""
    options = EngineOptions(**config["engine"])
    return Judge(build_text_engine(options), AskOptions(**config["judge"]), name=str(options.model))


def describe_judge(config: Mapping[str, Any]) -> UsedModel:
    """Describes the judge's model for the origins of predictions."""
    options = EngineOptions(**config["engine"])
    assert options.model is not None
    if options.name == "openai":
        return UsedModel(role=CHECKPOINT, path=options.model, reason=SERVED)
    return describe_model(options.model)
