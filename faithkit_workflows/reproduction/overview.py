"""Lists every table and figure before it is run: its data, prompts and hardware, and whether it can be compared."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from faithkit_workflows.reproduction.all_tables import steps_of
from faithkit_workflows.reproduction.cells import Table
from faithkit_workflows.reproduction.paper_figures import Figure
from faithkit_workflows.reproduction.paper_prompts import OURS, describe_prompts, needed_prompts
from faithkit_workflows.reproduction.reproduction_report import list_replacements, needed_steps, prompts_by_step
from faithkit_workflows.reproduction.table_steps import (
    GPU_GIGABYTES,
    PAPER,
    Place,
    Step,
    find_blocked_steps,
)

MAX_REASONS = 4
NOT_PUBLISHED = "the paper's figure is not available"
BY_EYE = "by eye: the paper prints no numbers"


def describe_results(results: Sequence[Table | Figure], place: Place) -> Iterator[str]:
    """Yields the lines about each table and figure."""
    for result in results:
        steps = steps_of(result)
        comparable = BY_EYE if isinstance(result, Figure) else describe_comparability(result, place)
        yield f"{result.name}: {result.title}"
        yield f"  data: {', '.join(_describe_data(steps, place))}"
        yield from (f"  prompts: {prompts}" for prompts in _describe_prompts(steps, place))
        yield f"  hardware: {', '.join(_describe_hardware(steps, place))}"
        yield f"  comparable: {comparable}"


def _describe_data(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the corpora of the steps, and where each comes from."""
    for name in dict.fromkeys(name for step in steps for name in step.corpora.values()):
        if place.corpus(name):
            yield f"{name}: given"
        elif any(name in place.given(step) for step in steps):
            yield f"{name}: from the hub"
        else:
            yield f"{name}: {'missing' if place.scale == PAPER else 'embedded'}"


def _describe_prompts(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the prompts that language models are asked with: ours, or the user's."""
    found: dict[str, dict[str, str]] = {}
    for step in steps:
        folder, names = needed_prompts(step.arguments)
        origin = "ours" if describe_prompts(step.arguments, place.prompts) == OURS else "yours"
        for name in names:
            found.setdefault(folder, {})[name] = origin
    for folder, names_with_origin in found.items():
        yield f"{folder}: " + ", ".join(f"{name} ({origin})" for name, origin in names_with_origin.items())


def _describe_hardware(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the GPUs, trainings and paid servers that the steps need."""
    most = max((step.num_gpus for step in steps), default=0)
    trainings = sum(step.script == "train" for step in steps)
    runs_models = any(step.script != "construct" for step in steps)
    if place.scale == PAPER and runs_models:
        yield f"{max(1, most)} GPU{'s' if most > 1 else ''} of {GPU_GIGABYTES} GB"
    else:
        yield "CPU"
    if trainings:
        yield f"{trainings} training{'s' if trainings > 1 else ''}"
    yield from dict.fromkeys(step.server for step in steps if step.server)


def describe_comparability(table: Table, place: Place) -> str:
    """Counts the cells that could be compared with the paper, and names what prevents the others."""
    steps = {step.name: step for step in table.steps}
    blocked: Mapping[str, str] = dict(find_blocked_steps(steps.values(), place))
    reasons: Counter[str] = Counter()
    prompts = prompts_by_step(steps, place)
    comparable = 0
    for cell in table.cells:
        needed = needed_steps(cell, steps)
        missing = [blocked[step.name] for step in needed if step.name in blocked]
        if cell.result is None or cell.published is None:
            reasons[cell.why or NOT_PUBLISHED] += 1
        elif others := missing[:1] or list_replacements(cell, needed, prompts, place):
            reasons["; ".join(others)] += 1
        else:
            comparable += 1
    shown = f"{comparable} of {len(table.cells)} figures"
    return "; ".join([shown, *(f"{number} not: {reason}" for reason, number in reasons.most_common(MAX_REASONS))])
