"""The tables of a smoke test: what was run and took, and what the real runs are estimated to take."""

from collections.abc import Sequence
from datetime import date

from speed.measure import machine, table
from tests.paper_smoke.estimate import ASSUMED, CHIPS, estimate
from tests.paper_smoke.recipes import Recipe
from tests.paper_smoke.run import Result

RUN = ("recipe", "parameters", "tokens", "GiB", "s a step", "s of an evaluation", "outcome")
REAL = ("recipe", "batch", "rows x epochs", "EFLOP", "GiB on one", "GPUs", *(f"hours, {name}" for name in CHIPS))


def print_report(found: Sequence[tuple[Recipe, Result | None]]) -> None:
    """Prints both tables with date and machine."""
    print(table(RUN, [run_row(*one) for one in found]))
    print(f"\n{date.today().isoformat()}, {machine()}\n")
    print(table(REAL, [real_row(recipe) for recipe, _ in found]))
    print(f"\nEstimated: {ASSUMED}")


def run_row(recipe: Recipe, result: Result | None) -> list[str]:
    """Tells what a recipe took."""
    if result is None:
        return [recipe.name, "", f"{recipe.max_length:,}", "", "", "", "not run yet"]
    peaks = [peak for ended in result.memory.values() for peak in ended[: recipe.processes]]
    each = f" each of {recipe.processes}" if recipe.processes > 1 else ""
    evaluations = [seconds for name, seconds in result.seconds.items() if name.startswith("evaluate")]
    mean = f"{sum(evaluations) / len(evaluations):.0f}" if evaluations else "-"
    step = "-" if result.step_seconds is None else f"{result.step_seconds:.1f}"
    outcome = result.error or f"passed, {len(evaluations)} benchmarks"
    size = f"{result.parameters / 1e6:.0f}M"
    return [recipe.name, size, f"{recipe.max_length:,}", f"{max(peaks, default=0):.1f}{each}", step, mean, outcome]


def real_row(recipe: Recipe) -> list[str]:
    """Tells what the real run of a recipe takes by estimate."""
    batch_size = own_batch_size(recipe)
    real = estimate(recipe, batch_size)
    return [
        recipe.name,
        str(batch_size),
        f"{recipe.num_rows:,} x {recipe.num_epochs}",
        f"{real.flop / 1e18:.1f}",
        f"{real.gib:.0f}",
        str(real.gpus),
        *(f"{hours:.1f}" for hours in real.hours.values()),
    ]


def own_batch_size(recipe: Recipe) -> int:
    """The batch size of the recipe itself."""
    from tests.running import compose

    return int(compose("train", *recipe.arguments, "scale=paper").model.batch_size)
