"""Lists the models with their requirements and measured figures.

faithkit models                     all models, one line each
faithkit models judge               the models for a task: critic, tagger, generator, judge
faithkit models critic-dialogue     one model: every figure with its source, and the command that trains it
"""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from faithkit.cli import run_command
from faithkit.errors import UserError, choice_hint
from faithkit.weights.local import LOCAL, known_models

WIDTH = 80
Model = dict[str, Any]  # a row of models.toml
LINE = "{:<17} {:>6}  {:<8} {:<13} {}"


def parse(arguments: Sequence[str]) -> list[Model]:
    """Selects the models of a command line: all, those of a task, or one by its name.

    Raises:
        UserError: There is no such model and no such task.
    """
    models = known_models()
    if not arguments:
        return list(models.values())
    tasks = dict.fromkeys(model["task"] for model in models.values())
    (asked, *more) = arguments
    if more:
        raise UserError(f"one name or task is expected, got {len(arguments)}", hint=f"faithkit models {asked}")
    if asked in models:
        return [models[asked]]
    if asked in tasks:
        return [model for model in models.values() if model["task"] == asked]
    raise UserError(f"there is no model and no task {asked!r}", hint=choice_hint(asked, [*tasks, *models]))


def overview(models: Sequence[Model]) -> Iterator[str]:
    """Formats the purpose of each model, its requirements, and its first figure."""
    yield LINE.format("name", "size", "memory", "per CPU-s", "weights")
    for model in models:
        memory = model["memory"]["value"] if "memory" in model else "-"
        speed = model["speed"][0]["value"] if "speed" in model else "-"
        yield LINE.format(model["name"], model["parameters"], memory, speed, model["weights"])
        yield from textwrap.wrap(model["description"], WIDTH, initial_indent="    ", subsequent_indent="    ")
        if "figures" in model:
            yield f"    measured: {model['figures'][0]['value']}"
    yield ""
    yield "-: not measured; `faithkit models NAME` shows the conditions of the measurements"


def detail(model: Model) -> Iterator[str]:
    """Formats all figures of one model."""
    yield f"{model['name']}: {model['description']}"
    where = "local: comes through the package index" if model["weights"] in LOCAL else "from the hub"
    yield f"  weights       {model['weights']}, {model['parameters']} ({where})"
    yield f"  train with    {model['command']}"
    if "data" in model:
        yield from _lines("data", model["data"])
    titles = {"training": "training", "memory": "memory", "speed": "per CPU-s", "figures": "measured"}
    for key, title in titles.items():
        found = model.get(key, [])
        for figure in [found] if key == "memory" and found else found:
            source = f"{figure['file']}, {figure['section']!r}"
            yield from _lines(title, f"{figure['value']}: {figure['conditions']} ({source})")
    if "figures" not in model:
        yield "  measured      nothing yet: compare it with the baselines of evaluate.py"


def _lines(title: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=f"  {title:<13} ", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def main(arguments: Sequence[str]) -> None:
    """Prints all models, those of a task, or one."""
    models = parse(arguments)
    alone = len(models) == 1 and list(arguments) == [models[0]["name"]]
    print("\n".join(detail(models[0]) if alone else overview(models)))


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
