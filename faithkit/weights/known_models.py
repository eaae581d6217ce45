"""Reads the list of models, models.toml: purpose, requirements and measurements of each."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("models.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement and its source.

    Args:
        says: The displayed value.
        what: The conditions.
        file: The source file, relative to the root of the project.
        under: The heading of the section.
        quote: A quote from the section.
    """

    says: str
    what: str
    file: str
    under: str
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that is trained, used or measured in this project.

    Args:
        task: critic, tagger, generator or judge.
        weights: A local name, or a hub's name.
        memory: Memory in use; None if not measured.
        speed: Throughput per CPU-second.
        training: Resources of its training.
        needs: The data that its command reads; None if the command names it.
    """

    name: str
    task: str
    weights: str
    parameters: str
    what: str
    command: str
    memory: Figure | None
    speed: tuple[Figure, ...]
    training: tuple[Figure, ...]
    figures: tuple[Figure, ...]
    needs: str | None = None


@cache
def known_models() -> dict[str, KnownModel]:
    """Reads all models, by name, in the order of the file."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["model"]
    return {row["name"]: _model(row) for row in rows}


def _model(row: dict[str, Any]) -> KnownModel:
    memory = row.pop("memory", None)
    lists: dict[str, Any] = {key: tuple(map(_figure, row.pop(key, []))) for key in ("speed", "training", "figures")}
    return KnownModel(task=row.pop("for"), memory=_figure(memory) if memory else None, **lists, **row)


def _figure(row: dict[str, str]) -> Figure:
    return Figure(file=row.pop("in"), **row)
