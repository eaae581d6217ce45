"""Reproduce tables and figures of the papers: train and evaluate what they need, and compare with the paper.

faithkit reproduce list                                       data, prompts and hardware of each table and figure
faithkit reproduce table=ragtruth_2 data_dir=DIR              as make reproduce TABLE=ragtruth_2 DATA=DIR in a checkout
faithkit reproduce table=faithdial_5                          a CPU, minutes: small models, the embedded corpus
faithkit reproduce table=faithdial_5 scale=paper data_dir=DIR the real experiment with its whole grid
faithkit reproduce table=faithdial_5 dry_run=true             the commands of its steps, and which are done
faithkit reproduce table=ragtruth_5 scale=paper trainer=fsdp engine.num_gpus=4   the hardware of its steps
faithkit reproduce table=all                                  every table, and research/reproduction.md
faithkit reproduce table=ragtruth_5 scale=paper prompts=DIR   with the papers' prompts, which you save in DIR
The same command resumes an interrupted one. DIR holds the corpora by name: docs/papers/reproducing.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faithkit.cli import run_script

GROUPS = ("scale", "trainer")


def main(cfg: Any) -> None:
    """Makes the tables and figures one after the other."""
    from omegaconf import OmegaConf

    from faithkit.errors import UserError
    from faithkit.files.run_folder import log_to, run_lock
    from faithkit_papers.reproduction.paper_tables import all_results, all_steps
    from faithkit_papers.reproduction.reproduction_report import describe_results, write_report, write_result
    from faithkit_papers.reproduction.table_files import ALL, LIST
    from faithkit_papers.reproduction.table_steps import (
        Place,
        describe_gpus,
        find_blocked_steps,
        run_steps,
        shell_command,
        step_state,
    )

    names = [cfg.table] if isinstance(cfg.table, str) else list(cfg.table)
    out = Path(cfg.out or f"runs/reproduce-{cfg.scale.name}")
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    place = Place(
        scale=cfg.scale.name,
        out=out,
        data_dir=Path(cfg.data_dir) if cfg.data_dir else None,
        prompts=Path(cfg.prompts).expanduser().absolute() if cfg.prompts else None,
        hosted=cfg.hosted,
        seed=cfg.seed,
        trainer=given.get("trainer"),
        engine={name: value for name, value in given["engine"].items() if value is not None},
    )
    known = all_results(place.scale)
    results = list(known.values()) if {ALL, LIST} & {*names} else [known[name] for name in dict.fromkeys(names)]
    if LIST in names:
        print(*describe_results(results, place), sep="\n")
        return
    if cfg.dry_run:
        steps = all_steps(results)
        blocked = find_blocked_steps(steps, place)
        for step in steps:
            print(f"{step.name}: {blocked[step.name] if step.name in blocked else step_state(step, place)}")
            print(f"  {shell_command(step, place)}")
            if too_few := describe_gpus(step, place):
                print(f"  {too_few}")
        runnable = len(steps) - len(blocked)
        print(f"{len(results)} tables and figures, {len(steps)} steps, of which {runnable} can be run here")
        return
    report = cfg.report or ("research/reproduction.md" if ALL in names else None)
    out.mkdir(parents=True, exist_ok=True)
    with run_lock(out):
        log_to(out / "reproduce.log")
        without: dict[str, str] = {}
        made = []
        for result in results:
            without |= run_steps(all_steps([result]), place)
            made.append(write_result(result, place, without))
            if report:  # after each table, so that an interrupted command has a report too
                write_report(Path(report), made, place)
    print(report or out)
    if failed := [why for why in without.values() if "failed" in why]:
        hint = "the same command repeats the failed steps, and skips the finished ones"
        raise UserError(f"{len(failed)} steps failed, the first: {failed[0]}", hint=hint)


def _read_list(arguments: Sequence[str]) -> list[str]:
    """Reads `list` as `table=list`; a list starts no work, so no table is named with it."""
    from faithkit.errors import UserError

    found = ["table=list" if argument == "list" else argument for argument in arguments]
    tables = [argument for argument in found if argument.startswith("table=")]
    if "table=list" in tables and len(tables) > 1:
        hint = "faithkit reproduce list, or dry_run=true with the table for its steps"
        raise UserError(f"list shows every table, and {tables[1 - tables.index('table=list')]} is named too", hint=hint)
    return found


def run() -> None:
    """Runs the command line."""
    settings = "faithkit_papers.reproduction.settings:ReproduceSettings"
    run_script(main, "reproduce", __doc__ or "", GROUPS, settings, prepare=_read_list)


if __name__ == "__main__":
    run()
