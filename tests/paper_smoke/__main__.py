"""python -m tests.paper_smoke: takes every recipe of `scale=paper` through two steps, a kill, a resume, export, tests.

The weights are random and of the true architectures, the rows as long as the recipes read. A recipe that has passed is
not run again: --again runs it, --only NAME runs one, --list names them. Needs Linux, 16 GiB of memory, 40 GB of disk.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.paper_smoke.memory import available_gib, memory_of_each
from tests.paper_smoke.recipes import RECIPES, Recipe
from tests.paper_smoke.report import print_report
from tests.paper_smoke.run import is_done, run_recipe, stored_result
from tests.paper_smoke.workshop import Workshop
from tests.running import ROOT


def main() -> int:
    """Runs what has not passed yet, and prints the tables; the exit code counts those that did not pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.paper_smoke", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="recipes whose name begins so")
    parser.add_argument("--again", action="store_true", help="also what has passed")
    parser.add_argument("--list", action="store_true", help="names the recipes and runs nothing")
    parser.add_argument("--table", action="store_true", help="prints the tables of what was run")
    parser.add_argument("--dir", type=Path, default=ROOT / "build" / "paper_smoke", help="weights, rows, results")
    options = parser.parse_args()
    chosen = [recipe for start in options.only for recipe in RECIPES if recipe.name.startswith(start)]
    if not chosen:
        parser.error(f"no recipe's name begins with {' or '.join(options.only)}; --list names them")
    if options.list:
        print(*(recipe.name for recipe in chosen), sep="\n")
        return 0
    shop = Workshop(options.dir)
    if not options.table:
        run_all([recipe for recipe in chosen if options.again or not is_done(recipe, shop)], shop)
    results = [stored_result(recipe, shop) for recipe in chosen]
    print_report(list(zip(chosen, results, strict=True)))
    return sum(result is None or not result.passed for result in results)


def run_all(recipes: Sequence[Recipe], shop: Workshop) -> None:
    """Runs recipes in their order; one for which there is too little memory waits for the next place."""
    waiting, wanted = list(recipes), memory_of_each(recipes)
    while waiting:
        here = available_gib()
        recipe = next((recipe for recipe in waiting if wanted[recipe.name] < here), None)
        if recipe is None:
            print(f"waiting for memory: {here:.0f} GiB are available", file=sys.stderr, flush=True)
            time.sleep(20)
            continue
        waiting.remove(recipe)
        print(f"{recipe.name} ...", file=sys.stderr, flush=True)
        result = run_recipe(recipe, shop)
        print(f"{recipe.name}: {result.error or 'passed'}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
