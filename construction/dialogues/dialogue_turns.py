"""Reads the turns of any dataset of dialogues as rows that a model replies to."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from construction.chain.steps import KEY, Row, Source
from data_modules.build import build_source
from data_modules.reading.dataset import Source as Dataset
from data_modules.reading.dataset import content_hash, read_examples, resolve_split
from data_modules.reading.dialogues import write_history
from data_modules.reading.fields import WIZARD
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example, Turn

log = logging.getLogger("faithkit")


class DialogueTurns:
    """Reads the turns of a block `{dataset, path, split, options}`, one row each.

    Args:
        limit: Reads only the first turns.
        make_row: Makes the row of a turn.
        tags: Reads only turns with one of these tags.
    """

    def __init__(
        self,
        block: Mapping[str, Any],
        limit: int | None = None,
        *,
        make_row: Callable[[Example], Row] | None = None,
        tags: Collection[str] = (),
    ):
        self.block, self.limit, self.make_row, self.tags = block, limit, make_row or turn_row, tags
        self.dataset: Dataset = build_source(
            block["dataset"], block["path"], embedded_rows=block["embedded_rows"], **block["options"]
        )
        self.split = resolve_split(self.dataset, block["split"])

    def as_source(self, name: str) -> Source:
        """Makes the first step of a chain; its settings have the options, and the files' content."""
        content = content_hash(self.dataset, self.split)
        settings = {"dataset": self.dataset.name, "split": self.split, "limit": self.limit, "content": content}
        return Source(name=name, read=self.rows, settings={**settings, "tags": list(self.tags)})

    def rows(self) -> Iterator[Row]:
        """Reads the rows.

        Raises:
            UserError: No turn has one of the tags.
        """
        report = ReadReport(self.block["on_bad_row"])
        number = 0
        for example in read_examples(self.dataset, self.split, report):
            if self.tags and not {tag.strip().lower() for tag in example.tags} & {*self.tags}:
                report.count("not tagged as hallucinated" if example.tags else "without tags")
                continue
            yield self.make_row(example)
            number += 1
            if number == self.limit:
                break
        log.info("%s: %s", self.dataset.name, ", ".join(f"{name} {count:,}" for name, count in report.counts.items()))
        if self.tags and not number:
            hint = "pipeline.which=detector pipeline.detector=runs/..., or a dataset with BEGIN tags"
            raise UserError("no reply is tagged as hallucinated", place=self.dataset.name, hint=hint)


def turn_row(example: Example) -> Row:
    """Makes the row of a turn; its reference is the response that the dataset calls correct."""
    return {
        KEY: example.id,
        "dialogue": example.group,
        "turn": sum(turn.speaker == WIZARD for turn in example.history),
        "knowledge": example.knowledge,
        "history": [[turn.speaker, turn.text] for turn in example.history],
        "reference": example.reference or example.response,
    }


def history_of(row: Row, between: str = "\n") -> str:
    """Writes the history of a row."""
    return write_history([Turn(speaker=speaker, text=text) for speaker, text in row["history"]], between)


def turn_values(row: Row, **others: str) -> dict[str, str]:
    """Gives the texts of a row for a prompt, and further values."""
    texts: dict[str, str] = {name: row[name] for name in ("knowledge", "reference", "response") if name in row}
    return {**texts, "history": history_of(row), **others}


def last_turn(row: Row) -> str:
    """Gives the text of the last turn."""
    return str(row["history"][-1][1]) if row["history"] else ""
