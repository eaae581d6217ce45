"""Loads a language model as judge: any model that an engine runs, or that a server does."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from faithkit.inference.request_cache import CachedEngine
from faithkit.inference.text_engines import OPENAI, EngineOptions, build_text_engine
from faithkit.weights.used_model import CHECKPOINT, UsedModel, describe_model
from judge.asking import AskOptions
from judge.choosing import Asker, Question
from judge.few_shot import Shot
from judge.judge import Judge
from judge.weights import stored_judge

SERVED = "what a server's model was trained on is not known"
log = logging.getLogger("faithkit")


def load_judge(config: Mapping[str, Any], shots: Sequence[Shot] = ()) -> Judge:
    """The judge that the blocks `engine` and `judge` of a configuration name.

    Args:
        shots: Examples that stand in its prompt, where the block does not name a file of them.
    """
    options, asked = EngineOptions(**config["engine"]), AskOptions(**config["judge"])
    if options.name == OPENAI or not options.model:
        return Judge.trained(build_text_engine(options), None, asked, shots=shots, name=str(options.model))
    source, settings = stored_judge(options.model)
    judge = Judge.trained(
        build_text_engine(replace(options, model=source)), settings, asked, shots=shots, name=options.model
    )
    if settings and judge.template != settings.template:
        log.warning("%s learnt to be asked by judge.ask=%s and our prompt", options.model, settings.ask)
    return judge


def load_asker(config: Mapping[str, Any], question: Question) -> tuple[Asker, Callable[[], None]]:
    """The model of the block `engine`, to be asked another question than a judge's; and what it tells at the end."""
    engine, ask = build_text_engine(EngineOptions(**config["engine"])), AskOptions(**config["judge"])
    asker = Asker(engine, question, prompts=ask.prompts, written=ask.written, max_new_tokens=ask.max_new_tokens)
    return asker, lambda: tell_engine(engine)


def describe_judge(config: Mapping[str, Any], role: str = CHECKPOINT) -> UsedModel:
    """Describes the judge's model for the origins of predictions."""
    options = EngineOptions(**config["engine"])
    assert options.model is not None, "load_judge has refused it"
    if options.name == OPENAI:
        return UsedModel(role=role, path=options.model, reason=SERVED)
    return describe_model(options.model, role)


def tell_usage(judge: Judge) -> None:
    """Says how many questions were asked, how many the cache knew, and what a server counted."""
    tell_engine(judge.engine)


def tell_engine(engine: Any) -> None:
    """Says it of an engine."""
    if isinstance(engine, CachedEngine):
        log.info("%s replies known from %s, %s questions asked", f"{engine.known:,}", engine.path, f"{engine.asked:,}")
        engine = engine.engine
    if (usage := getattr(engine, "usage", None)) is not None:
        log.info("%s", usage)
