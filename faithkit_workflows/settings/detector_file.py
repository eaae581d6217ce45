"""A file that describes a detector which no folder holds: a model behind a server, a judge asked in a way, a cascade.

    engine: {name: openai, model: NAME, base_url: URL}
    judge: {ask: steps}

Its keys are those of evaluate.py: `checkpoint`, `engine`, `judge`, `cascade` (with its band). Whatever takes a detector
takes it: `generate.py detector=FILE.yaml`, `faithkit chat`, `faithkit score`, `benchmark.critic`, `benchmark.judges`.
"""

from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.saved_config import read_config
from faithkit.settings.check import check_settings
from faithkit.settings.types import Block, PathText
from faithkit_workflows.settings.engines import Ask, Cascade, Engine

SUFFIXES = (".yaml", ".yml")
HINT = "its keys are those of evaluate.py: checkpoint, engine, judge, cascade"


class DetectorFile(Block):
    """The keys of the file."""

    checkpoint: PathText | None = None
    engine: Engine
    judge: Ask
    cascade: Cascade


def is_detector_file(path: str) -> bool:
    """Tells the file of a detector from a run, a folder or a hub name."""
    return Path(path).suffix in SUFFIXES and Path(path).expanduser().is_file()


def read_detector_file(path: str) -> dict[str, Any]:
    """Reads the file as the keys of a configuration.

    Raises:
        UserError: It is no plain data, a key is wrong, or it names no detector, or two that are no cascade.
    """
    try:
        found: Any = check_settings(read_config(Path(path).expanduser()), DetectorFile)
        _check(found)
    except UserError as error:
        hint = error.hint if error.hint and "config.yaml" not in error.hint else HINT
        raise UserError(error.problem, place=error.place or path, hint=hint) from error
    return dict(found.model_dump())


def _check(found: Any) -> None:
    ways = found.cascade
    if ways.budget is not None or ways.precision is not None or ways.max_budget is not None:
        problem = "a file of a cascade gives its band: a budget or a precision is chosen on rows"
        raise UserError(problem, hint="evaluate.py cascade.budget=0.2 writes such a file into its run's folder")
    if ways.band is not None and not (found.checkpoint and found.engine.name):
        raise UserError("a cascade is of a checkpoint and a language model", hint="name both: checkpoint, engine")
    if ways.band is None and found.checkpoint and found.engine.name:
        raise UserError("checkpoint and engine are both named", hint="leave one out, or cascade: {band: [LOW, HIGH]}")
    if not found.checkpoint and not found.engine.name:
        raise UserError("the file names no detector", hint=HINT)
    if found.checkpoint and Path(found.checkpoint).suffix in SUFFIXES:
        raise UserError("checkpoint is another such file", hint="name a run, a folder or a hub name")
