"""Draws the examples of a prompt from rows of the benchmark's dataset that are not tested."""

import logging
from collections.abc import Mapping
from typing import Any

from data_modules.build import Benchmark, build_source
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from judge.few_shot import Shot, draw_shots

UNTESTED = ("train", "validation")  # splits in the order in which they are looked for
log = logging.getLogger("faithkit")


def shots_for(benchmark: Benchmark, block: Mapping[str, Any], ask: str, number: int, *, seed: int) -> list[Shot]:
    """Draws labelled rows of the training split, whose knowledge, dialogue and group stand in no tested row.

    Args:
        block: The block `benchmark`.

    Raises:
        UserError: The dataset has no split beside the tested one, or too few such rows.
    """
    target = block.get("_target_")
    name = block.get("dataset", None if target else block["name"])
    source = build_source(name, block["path"], _target_=target, **block["options"])
    tested = resolve_split(source, block["split"])
    split = next((one for one in UNTESTED if one in source.split_names() and one != tested), None)
    if split is None:
        hint = "give examples of your own: judge.examples=FILE"
        raise UserError(
            f"{benchmark.name} has no training rows here to draw examples from", place=source.path, hint=hint
        )
    excluded, groups = Excluded.of(benchmark.examples), {example.group for example in benchmark.examples}
    read = read_examples(source, split, ReadReport(block["on_bad_row"]))
    rows = [e for e in read if e.label is not None and e.group not in groups and not excluded.covers(e)]
    shots = draw_shots(rows, ask, number, seed=seed)
    log.info("examples in the prompt, of %s/%s: %s", benchmark.name, split, ", ".join(s.example.id for s in shots))
    return shots
