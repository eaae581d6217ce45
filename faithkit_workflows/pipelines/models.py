"""The language models of a construction: those that write, by name, and the one that annotates."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from faithkit.errors import UserError
from faithkit.inference.text import TextEngine
from faithkit.inference.text_engines import OPENAI, EngineOptions, build_text_engine

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")  # what a file's name does without


def annotator_of(config: Mapping[str, Any]) -> EngineOptions:
    """The model of the block `engine`: it annotates, and it writes where no others are named."""
    return EngineOptions(**config["engine"])


def build_model(options: EngineOptions) -> TextEngine:
    """Loads a model, which may be that of a judge of ours, by its run."""
    if options.name != OPENAI and options.model:
        from judge.weights import stored_judge

        options = replace(options, model=stored_judge(options.model).source)
    return build_text_engine(options)


def writers_of(config: Mapping[str, Any]) -> dict[str, EngineOptions]:
    """The models that write, by the names of their branches: those of `models`, each on the block `engine` or its own.

    Raises:
        UserError: Two models come to one name.
    """
    own, models = annotator_of(config), config["models"] or [config["engine"]["model"]]
    if isinstance(models, Mapping):
        known = {one.name for one in fields(EngineOptions)}
        return {
            branch_name(name): replace(own, **{k: v for k, v in block.items() if k in known and v is not None})
            for name, block in models.items()
        }
    found: dict[str, EngineOptions] = {}
    for model in models:
        name = branch_name(str(model).rstrip("/").rpartition("/")[2])
        if name in found:
            hint = f"name them: 'models={{one: {{model: {model}}}, other: ...}}'"
            raise UserError(f"two models have the name {name}", place="models", hint=hint)
        found[name] = replace(own, model=model)
    return found


def branch_name(text: str) -> str:
    """Makes a name that a file can have."""
    return _NO_NAME.sub("-", text).strip(".-") or "model"
