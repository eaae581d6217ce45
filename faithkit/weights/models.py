"""Reads the list of models beside this file: what each is for, what it takes, and what was measured where."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("models.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure, and where it stands.

    Args:
        says: The figure as it is shown.
        what: On what it was measured, or of what it is.
        file: Where it is told, from the root of the project.
        under: The heading of its section there.
        quote: Words of that section.
    """

    says: str
    what: str
    file: str
    under: str
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that is trained, asked or measured here.

    Args:
        task: critic, tagger, generator or judge.
        weights: A local name, or a hub's name.
        memory: What its use takes; None where that was not measured.
        speed: What it does in a CPU-second.
        training: What its training takes.
        needs: The data that its command reads; None where that is said by the command.
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
