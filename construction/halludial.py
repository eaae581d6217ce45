"""Writes rows in HalluDial's official layout, as `data_modules.datasets.halludial` reads it.

`SCENARIO/SCENARIO_SPLIT.json` is a JSON list of {dialogue_id, knowledge, dialogue_history, turn, response, target};
the model and the chain's key stand beside them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from construction.dialogues import history_of
from construction.divide import Division
from construction.rows import KEY, Row
from faithkit.files.atomic import atomic_file, disk_errors, dumps

SPONTANEOUS, INDUCED = "spontaneous", "induced"  # scenarios


def write_halludial(folder: Path, scenario: str, rows: Iterator[Row], division: Division) -> Counter[str]:
    """Writes rows with `response`, `target` and `model`, and those without a model as nobody's; counts them by split.

    Memory holds one row; each file is whole or absent.
    """
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        paths = {split: folder / scenario / f"{scenario}_{split}.json" for split in division.splits}
        files = {split: stack.enter_context(atomic_file(path)) for split, path in paths.items()}
        for row in rows:
            split = division.split_of(row["dialogue"])
            with disk_errors(paths[split]):
                files[split].write(("[\n" if not counts[split] else ",\n").encode())
                files[split].write(dumps(official_row(row)).encode())
            counts[split] += 1
        for split, file in files.items():
            with disk_errors(paths[split]):
                file.write(b"\n]\n" if counts[split] else b"[]\n")
    return counts


def official_row(row: Row) -> Row:
    """Makes the row that a file has."""
    dialogue = row["dialogue"]
    return {
        "dialogue_id": int(dialogue) if dialogue.isascii() and dialogue.isdigit() else dialogue,
        "knowledge": row["knowledge"],
        "dialogue_history": history_of(row, " "),
        "turn": row["turn"],
        "response": row["response"],
        "target": row["target"],
        "model": row.get("model"),
        KEY: row[KEY],
    }
