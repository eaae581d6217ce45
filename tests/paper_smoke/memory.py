"""Estimates the memory that a recipe's training takes, and reads what is there."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.paper_smoke.architectures import num_parameters
from tests.paper_smoke.recipes import Recipe


def aside(work: Callable[..., Any], *arguments: Any) -> Any:
    """Does work in a process of its own, so that this one stays small; imports are made once for all of it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.modeling_utils"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


def memory_of_each(recipes: Sequence[Recipe]) -> dict[str, float]:
    """The GiB that each recipe's training takes at least, by its name."""
    counts = aside(count_each, sorted({recipe.weights for recipe in recipes}))
    return {recipe.name: memory_wanted(recipe, counts[recipe.weights]) for recipe in recipes}


def count_each(names: Sequence[str]) -> dict[str, int]:
    """The parameters of architectures by their names."""
    return {name: num_parameters(name) for name in names}


def memory_wanted(recipe: Recipe, parameters: int) -> float:
    """The GiB that a training takes at least: weights, gradients, moments, and what a process has besides."""
    state = 8 if "trainer.precision=bf16-true" in recipe.own else 16
    return recipe.processes * (state * parameters / 2**30 + 2.0)


def available_gib() -> float:
    """The memory that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20
