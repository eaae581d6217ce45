"""The examples that a generator answers: every row of one split, whether it has a label or not."""

import logging
from collections.abc import Mapping
from typing import Any

from data_modules.build import build_source, part_names
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example

log = logging.getLogger("faithkit")


def read_generation_inputs(data: Mapping[str, Any]) -> dict[str, list[Example]]:
    """The examples of each part of a `data` block by the part's name: of `data.split`, or of the test split.

    `num_rows` counts in each part.
    """
    parts = data["parts"]
    blocks = list(parts.values()) if isinstance(parts, Mapping) else parts
    options = [{key: value for key, value in block.items() if key not in ("weight", "only")} for block in blocks]
    sources = [build_source(**each) for each in options]
    names = part_names(parts, sources)
    if len(set(names)) < len(names):
        raise UserError("two parts of data.parts have the same dataset", hint="give the parts names: {NAME: {...}}")
    examples = {}
    for name, source in zip(names, sources, strict=True):
        report = ReadReport(data["on_bad_row"])
        examples[name] = list(read_examples(source, data["split"], report, data["num_rows"]))
        log.info("%s: %s", name, ", ".join(f"{outcome} {count:,}" for outcome, count in report.counts.items()))
    return examples
