"""Dialogue turns with their knowledge, one a row: {conv, history, knowledge, response}, history a list of texts.

In this layout turns of several corpora are passed on, cut out of the official conversations.
"""

from pathlib import Path

from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import alternate, other_fields
from data_modules.reading.files import Patterns, find_files
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.records import Example

FIELDS = ("conv", "history", "knowledge", "response")
OPENS = "dropped: opens the conversation"
EMPTY = "dropped: empty message"


def find_turns(path: str, turns: Patterns, raw: Patterns, address: str) -> dict[str, list[Path]]:
    """The files of each split: the turns where the folder has them, the official conversations otherwise.

    The official folder of conversations may be named itself: then it is what is read, whatever lies beside it.
    """
    inner = Path(next(iter(raw.values()))[0]).parts[0]
    root = Path(path).expanduser()
    if root.name == inner and root.is_dir():
        return find_files(str(root.parent), raw, address=address)
    return find_files(path, turns, raw, address=address)


def is_turn(row: Row) -> bool:
    return "conv" in row.values


def turn_example(row: Row, source: str, split: str) -> Example:
    """The record of one turn; what else its row says stands in `meta`."""
    row.layout({"turns": FIELDS})
    return Example(
        id=row.default_id,
        source=source,
        split=split,
        group=row.text("conv"),
        knowledge=row.text("knowledge"),
        history=alternate(row.texts("history")),
        response=row.text("response"),
        reference=row.text("response"),
        meta=other_fields(row.values, FIELDS),
    )


def read_file(source: Source, file: Path, split: str, report: ReadReport) -> Records:
    """The records of one file of a dataset whose other files hold no rows, but what its rows refer to."""
    for row in read_rows(file, report):
        for example in source.read_row(row, split, report):
            yield example, None
