"""Tells what a pipeline wrote: rows by split, model and label, what failed, and what stands in two splits."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from construction.chain.chain_rows import Row
from construction.chain.divide import Division
from construction.chain.runner import FOLDER, Chain
from construction.chain.split_leaks import TextInSplit, find_shared_texts
from faithkit.files.run_folder import RunFolder
from faithkit.pages.tables import new_number_table, print_tables

OUTPUT = "benchmark"  # in the run's folder: the official layout
CHECKED = ("knowledge", "response")  # fields that should not stand in two splits
log = logging.getLogger("faithkit")


def division_of(config: Mapping[str, Any]) -> Division:
    """The division into splits that a configuration asks for."""
    return Division({"test": config["pipeline"]["test_fraction"]}, config["seed"])


def tell_written(
    run: RunFolder,
    config: Mapping[str, Any],
    chain: Chain,
    counts: Mapping[str, int],
    rows: Callable[[], Iterator[Row]],
    *,
    group: str = "dialogue",
    fields: Sequence[str] = CHECKED,
) -> None:
    """Prints counts and leaks of the rows that were written, and keeps both in the manifest.

    Args:
        counts: Rows by split.
        rows: Reads the rows once more.
        group: The field that splits keep together.
        fields: Texts that should not stand in two splits.
    """
    division = division_of(config)
    kinds: Counter[str] = Counter()
    for row in rows():
        kinds[f"model {row.get('model') or 'none'}"] += 1
        kinds[f"label {row.get('label')}"] += "label" in row
        kinds["verdict weighed, not written"] += "verdict_weighed" in row
        kinds[f"quality {row.get('quality')}"] += "quality" in row
        kinds["responses that may deny what is null"] += bool(row.get("null_mentions"))
        kinds["quoted parts that are not in the response"] += row.get("unlocated", 0)
    holes: Counter[str] = Counter()
    for step in chain.manifest.steps.values():
        own = {why: number for why, number in step.holes.items() if why.startswith(f"{step.name}: ")}
        holes.update(own)
    shared = {
        field: find_shared_texts(
            lambda field=field: (  # type: ignore[misc]
                TextInSplit(division.split_of(row[group]), row[group], row[field]) for row in rows()
            ),
            config["pipeline"]["near_duplicates"],
        )
        for field in fields
    }
    _show(counts, kinds, holes, {field: found.lines for field, found in shared.items()})
    chain.manifest.result = {
        "rows": dict(counts),
        "kinds": {name: number for name, number in kinds.items() if number},
        "holes": dict(holes),
        "shared": {field: found.to_dict() for field, found in shared.items()},
    }
    chain.manifest.write()
    if not sum(counts.values()):
        most = max(holes, key=lambda why: holes[why], default="no input")
        log.warning("nothing was written: no row could be used (most failed by %s); see %s", most, run.path / FOLDER)
        return
    log.info("written: %s", run.path / OUTPUT)


def _show(
    counts: Mapping[str, int], kinds: Mapping[str, int], holes: Mapping[str, int], shared: Mapping[str, dict[str, int]]
) -> None:
    table = new_number_table("what was built", "rows", ["number"], show_edge=True)
    for split, number in counts.items():
        table.add_row(f"split {split}", f"{number:,}")
    for name, number in sorted(kinds.items()):
        if number:
            table.add_row(name, f"{number:,}")
    for name, number in sorted(holes.items()):
        table.add_row(f"failed, {name}", f"{number:,}")
    for field, lines in shared.items():
        for name, number in lines.items():
            table.add_row(f"{field} {name}", f"{number:,}")
    print_tables(table)
