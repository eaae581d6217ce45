"""Loads a language model as judge: any model that a local engine or a server runs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from faithkit.inference.reply_cache import CachedEngine
from faithkit.inference.text import OPENAI
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.records import Example
from faithkit.weights.used_model import CHECKPOINT, UsedModel, describe_model
from judge.judge import Judge
from judge.options import AskOptions
from judge.questions import Asker, Question
from judge.settings import stored_judge

log = logging.getLogger("faithkit")


def load_judge(config: Mapping[str, Any], shots: Sequence[Example] = ()) -> Judge:
    """Loads the judge of the blocks `engine` and `judge`.

    Args:
        shots: Examples in its prompt, unless the block names a file with examples.
    """
    options, asked = EngineOptions(**config["engine"]), AskOptions(**config["judge"])
    if options.name == OPENAI or not options.model:
        return Judge.trained(build_text_engine(options), None, asked, shots=shots, name=str(options.model))
    source, settings = stored_judge(options.model)
    engine = build_text_engine(replace(options, model=source))
    judge = Judge.trained(engine, settings, asked, shots=shots, name=options.model)
    if settings and judge.template != settings.template:
        log.warning("%s was trained with judge.ask=%s and the built-in prompt", options.model, settings.ask)
    return judge


def load_asker(config: Mapping[str, Any], question: Question) -> tuple[Asker, Callable[[], None]]:
    """Loads the model of the block `engine` for another question, and the function that logs its usage."""
    engine, ask = build_text_engine(EngineOptions(**config["engine"])), AskOptions(**config["judge"])
    asker = Asker(engine, question, prompts=ask.prompts, written=ask.written, max_new_tokens=ask.max_new_tokens)
    return asker, lambda: log_usage(engine)


def describe_judge(config: Mapping[str, Any], role: str = CHECKPOINT) -> UsedModel:
    """Describes the judge's model for the record of where predictions come from."""
    options = EngineOptions(**config["engine"])
    assert options.model is not None, "load_judge has refused it"
    if options.name == OPENAI:
        return UsedModel(role=role, path=options.model, reason="the training data of a server's model are not known")
    return describe_model(options.model, role)


def log_usage(engine: Any) -> None:
    """Logs how many requests were sent, how many replies came from the cache, and what a server counted."""
    if isinstance(engine, CachedEngine):
        log.info("%s replies from the cache %s, %s requests", f"{engine.known:,}", engine.path, f"{engine.asked:,}")
        engine = engine.engine
    if (usage := getattr(engine, "usage", None)) is not None:
        log.info("%s", usage)
