"""Examples to answer: every row of one split, whether anybody has judged it or not."""

import logging
from collections.abc import Mapping
from typing import Any

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example

log = logging.getLogger("faithkit")


def read_parts(data: Mapping[str, Any]) -> dict[str, list[Example]]:
    """The examples of each part of a `data` block by the part's name: of `data.split`, or of the test split.

    `num_rows` counts in each part.
    """
    parts = data["parts"]
    named = parts if isinstance(parts, Mapping) else {part.get("dataset"): part for part in parts}
    if len(named) < len(parts):
        raise UserError("two parts of data.parts have the same dataset", hint="give the parts names: {NAME: {...}}")
    read = {}
    for name, part in named.items():
        options = {key: value for key, value in part.items() if key not in ("weight", "only")}
        report = ReadReport(data["on_bad_row"])
        read[str(name)] = list(read_examples(build_source(**options), data["split"], report, data["num_rows"]))
        counts = ", ".join(f"{what} {count:,}" for what, count in report.counts.items())
        log.info("%s: %s", name, counts)
    return read
