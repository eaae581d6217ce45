"""Reads the turns of any dataset of dialogues as rows that a model replies to."""

from collections.abc import Iterator, Mapping
from typing import Any

from construction.chain.steps import KEY, Row
from data_modules.build import build_source
from data_modules.encoding.encoding_cache import content_hash
from data_modules.reading.dataset import Source as Dataset
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.dialogues import write_history
from data_modules.reading.fields import WIZARD
from data_modules.reading.rows import ReadReport
from faithkit.records import Example, Turn


class DialogueTurns:
    """Reads the turns of a block `{dataset, path, split, options}`, one row each.

    Args:
        limit: Reads only the first turns.
    """

    def __init__(self, block: Mapping[str, Any], limit: int | None = None):
        self.block, self.limit = block, limit
        self.dataset: Dataset = build_source(
            block["dataset"], block["path"], embedded_rows=block["embedded_rows"], **block["options"]
        )
        self.split = resolve_split(self.dataset, block["split"])

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on: the options, and the files' content."""
        content = content_hash(self.dataset, self.split)
        return {"dataset": self.dataset.name, "split": self.split, "limit": self.limit, "content": content}

    def rows(self) -> Iterator[Row]:
        """Reads the rows."""
        report = ReadReport(self.block["on_bad_row"])
        for example in read_examples(self.dataset, self.split, report, self.limit):
            yield turn_row(example)


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
