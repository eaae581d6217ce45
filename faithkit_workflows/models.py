"""Lists the models with their requirements and measured figures.

faithkit models                     all models, one line each
faithkit models judge               the models for a task: critic, tagger, generator, judge
faithkit models critic-dialogue     one model: every figure with its source, and the command that trains it
"""

import sys
import textwrap
from collections.abc import Iterator, Sequence

from faithkit.cli import USER_ERROR
from faithkit.errors import UserError, choice_hint
from faithkit.weights.known_models import Figure, KnownModel, known_models
from faithkit.weights.local import LOCAL

WIDTH = 80
LINE = "{:<17} {:>6}  {:<8} {:<13} {}"


def parse(arguments: Sequence[str]) -> list[KnownModel]:
    """Selects the models of a command line: all, those of a task, or one by its name.

    Raises:
        UserError: There is no such model and no such task.
    """
    models = known_models()
    if not arguments:
        return list(models.values())
    tasks = dict.fromkeys(model.task for model in models.values())
    (asked, *more) = arguments
    if more:
        raise UserError(f"one name or task is expected, got {len(arguments)}", hint=f"faithkit models {asked}")
    if asked in models:
        return [models[asked]]
    if asked in tasks:
        return [model for model in models.values() if model.task == asked]
    raise UserError(f"there is no model and no task {asked!r}", hint=choice_hint(asked, [*tasks, *models]))


def overview(models: Sequence[KnownModel]) -> Iterator[str]:
    """Formats the purpose of each model, its requirements, and its first figure."""
    yield LINE.format("name", "size", "memory", "a CPU-second", "weights")
    for model in models:
        memory = model.memory.says if model.memory else "-"
        speed = model.speed[0].says if model.speed else "-"
        yield LINE.format(model.name, model.parameters, memory, speed, model.weights)
        yield from textwrap.wrap(model.what, WIDTH, initial_indent="    ", subsequent_indent="    ")
        if model.figures:
            yield f"    measured: {model.figures[0].says}"
    yield ""
    yield "-: not measured; `faithkit models NAME` shows the conditions of the measurements"


def detail(model: KnownModel) -> Iterator[str]:
    """Formats all figures of one model."""
    yield f"{model.name}: {model.what}"
    where = "local: comes through the package index" if model.weights in LOCAL else "from the hub"
    yield f"  weights       {model.weights}, {model.parameters} ({where})"
    yield f"  to get it     {model.command}"
    if model.needs:
        yield from _lines("reads", model.needs)
    for figure in model.training:
        yield from _lines("training", _format_figure(figure))
    if model.memory:
        yield from _lines("memory", _format_figure(model.memory))
    for figure in model.speed:
        yield from _lines("a CPU-second", _format_figure(figure))
    for figure in model.figures:
        yield from _lines("measured", _format_figure(figure))
    if not model.figures:
        yield "  measured      nothing yet: compare it with the baselines of evaluate.py"


def _format_figure(figure: Figure) -> str:
    return f"{figure.says}: {figure.what} ({figure.file}, {figure.under!r})"


def _lines(title: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=f"  {title:<13} ", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def run() -> None:
    """Runs the command line."""
    arguments = sys.argv[1:]
    if any(argument in ("--help", "-h") for argument in arguments):
        print((__doc__ or "").strip())
        return
    try:
        models = parse(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    alone = len(models) == 1 and arguments == [models[0].name]
    print("\n".join(detail(models[0]) if alone else overview(models)))


if __name__ == "__main__":
    run()
