"""Reproduce tables of the papers: train what is needed, evaluate, and set ours beside the paper's with a verdict.

faithkit reproduce table=ragtruth_2 data_dir=DIR              as make reproduce TABLE=ragtruth_2 DATA=DIR in a checkout
faithkit reproduce table=faithdial_5                          a CPU, minutes: small models, the embedded corpus
faithkit reproduce table=faithdial_5 scale=paper data_dir=DIR the real experiment with its whole grid
faithkit reproduce table=faithdial_5 dry_run=true             the commands of its steps, and which are done
faithkit reproduce table=all                                  every table, and REPRODUCTION.md
The same command goes on where one was cut off. DIR holds the corpora by name: docs/reproducing.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:
    from faithkit_workflows.reproduction.cells import Table
    from faithkit_workflows.reproduction.steps import Place

GROUPS = ("scale",)


def main(cfg: Any) -> None:
    """Makes the tables one after the other."""
    from faithkit.errors import UserError
    from faithkit.files.run_folder import log_to
    from faithkit.files.run_lock import run_lock
    from faithkit_workflows.reproduction.registry import ALL, all_steps, chosen
    from faithkit_workflows.reproduction.report import write_report, write_table
    from faithkit_workflows.reproduction.running import run_steps
    from faithkit_workflows.reproduction.steps import Place

    names = [cfg.table] if isinstance(cfg.table, str) else list(cfg.table)
    out = Path(cfg.out or f"runs/reproduce-{cfg.scale.name}")
    data_dir = Path(cfg.data_dir) if cfg.data_dir else None
    place = Place(scale=cfg.scale.name, out=out, data_dir=data_dir, hosted=cfg.hosted, seed=cfg.seed)
    tables = chosen(names, place.scale)
    if cfg.dry_run:
        show_plan(tables, place)
        return
    report = cfg.report or ("REPRODUCTION.md" if ALL in names else None)
    out.mkdir(parents=True, exist_ok=True)
    with run_lock(out):
        log_to(out / "reproduce.log")
        without: dict[str, str] = {}
        made = []
        for table in tables:
            without |= run_steps(list(all_steps([table])), place)
            made.append(write_table(table, place, without))
            if report:  # after each: what is cut off has a report of what is there
                write_report(Path(report), made, place)
    print(report or out)
    if failed := [why for why in without.values() if "failed" in why]:
        hint = "the same command tries the failed steps again, and skips what is done"
        raise UserError(f"{len(failed)} steps failed, the first: {failed[0]}", hint=hint)


def show_plan(tables: "Sequence[Table]", place: "Place") -> None:
    """Prints the steps in their order: the command of each, and whether it is done or cannot be run here."""
    from faithkit_workflows.reproduction.registry import all_steps
    from faithkit_workflows.reproduction.running import shown, state
    from faithkit_workflows.reproduction.steps import blocked

    steps = list(all_steps(tables))
    without = dict(blocked(steps, place))
    for step in steps:
        print(f"{step.name}: {without[step.name] if step.name in without else state(step, place)}")
        print(f"  {shown(step, place)}")
    runnable = len(steps) - len(without)
    print(f"{len(tables)} tables, {len(steps)} steps, of which {runnable} can be run here")


def run() -> None:
    """The command line."""
    run_script(main, "reproduce", __doc__ or "", GROUPS, "faithkit_workflows.settings.reproduction:ReproduceSettings")


if __name__ == "__main__":
    run()
