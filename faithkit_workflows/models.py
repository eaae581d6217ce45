"""Lists the models with their requirements and measured figures.

faithkit models                     all models, one line each
faithkit models judge               the models for a task: critic, tagger, generator, judge
faithkit models known               trained detectors of others, which checkpoint= takes by name
faithkit models critic-dialogue     one model: every figure with its source, and the command that trains it
faithkit models critic_general      a recipe of experiment=: what it trains, on which files, with which commands
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from faithkit.cli import run_command
from faithkit.errors import UserError, choice_hint
from faithkit.published.known_detectors import KnownDetector, KnownLanguageModel, known_detectors
from faithkit.settings.config_files import CONFIGS, choices_of
from faithkit.weights.resolve import LOCAL, known_models

WIDTH = 80
EXPERIMENT = "experiment"
KNOWN = "known"  # the task of detectors of others
Model = dict[str, Any]  # a row of models.toml
LINE = "{:<17} {:>6}  {:<8} {:<13} {}"
KNOWN_LINE = "{:<26} {:>4}  {:<12} {}"


def parse(arguments: Sequence[str]) -> tuple[list[Model], list[KnownDetector]]:
    """Selects the models of a command line: all, those of a task, or one by its name.

    Raises:
        UserError: There is no such model and no such task.
    """
    models, known = known_models(), known_detectors()
    if not arguments:
        return list(models.values()), list(known.values())
    tasks = dict.fromkeys([*(model["task"] for model in models.values()), KNOWN])
    (asked, *more) = arguments
    if more:
        raise UserError(f"one name or task is expected, got {len(arguments)}", hint=f"faithkit models {asked}")
    if asked in {*models, *known}:
        return [models[asked]] if asked in models else [], [known[asked]] if asked in known else []
    if asked == KNOWN:
        return [], list(known.values())
    if asked in choices_of(EXPERIMENT):
        return [], []
    if asked in tasks:
        return [model for model in models.values() if model["task"] == asked], []
    problem, names = f"there is no model and no task {asked!r}", [*tasks, *models, *known, *choices_of(EXPERIMENT)]
    raise UserError(problem, hint=choice_hint(asked, names))


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
    models, known = parse(arguments)
    lines: list[str] = []
    if not models and not known:  # an experiment: the comment of its file, which has its commands
        lines = [f"{arguments[0]}: a recipe, which has no weights to download and must be trained"]
        stored = (CONFIGS / EXPERIMENT / f"{arguments[0]}.yaml").read_text(encoding="utf-8").splitlines()[1:]
        lines += [line.removeprefix("#").removeprefix(" ") for line in takewhile(lambda one: one[:1] == "#", stored)]
    elif [model["name"] for model in models] == list(arguments):
        lines = [*detail(models[0])]
    elif [one.name for one in known] == list(arguments):
        (one,) = known
        argument = "http://HOST:8000/v1" if isinstance(one, KnownLanguageModel) else "FOLDER"
        lines += [f"{one.name}: a detector of others; its figures were not measured here"]
        lines += _lines("weights", f"{one.hub}, {one.parameters} (from the hub)")
        lines += _lines("licence", one.licence)
        lines += _lines("use with", f"checkpoint={one.name}, or checkpoint={one.name}:{argument}")
        lines += _lines("published", f"{one.figure} ({one.source})")
        lines += _lines("rule", one.rule)
    else:
        if models:
            lines += [LINE.format("name", "size", "memory", "per CPU-s", "weights")]
        for model in models:
            memory = model["memory"]["value"] if "memory" in model else "-"
            speed = model["speed"][0]["value"] if "speed" in model else "-"
            lines += [LINE.format(model["name"], model["parameters"], memory, speed, model["weights"])]
            lines += textwrap.wrap(model["description"], WIDTH, initial_indent="    ", subsequent_indent="    ")
            if "figures" in model:
                lines += [f"    measured: {model['figures'][0]['value']}"]
        if models:
            lines += ["", "-: not measured; `faithkit models NAME` shows the conditions of the measurements"]
        lines += [""] * bool(models and known)
        if known:
            lines += [KNOWN_LINE.format("checkpoint=", "size", "licence", "published")]
            for one in known:
                figure = re.split("[,;]", one.figure)[0].replace("balanced accuracy", "BAcc")
                lines += [KNOWN_LINE.format(one.name, one.parameters, one.licence, figure)]
            lines += ["", "published: not measured here; BAcc: balanced accuracy; `faithkit models NAME`"]
            lines += ["has the source of a figure"]
    print("\n".join(lines))


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
