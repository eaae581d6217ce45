"""Writes rows in HalluDial's official layout, as `data_modules.datasets.halludial` reads it.

`SCENARIO/SCENARIO_SPLIT.json` is a JSON list of {dialogue_id, knowledge, dialogue_history, turn, response, target};
the model and the chain's key stand beside them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from construction.chain.chain_rows import KEY, Row
from construction.chain.divide import Division
from construction.dialogues.turn_rows import history_of
from faithkit.files.atomic import dumps

SPONTANEOUS, INDUCED = "spontaneous", "induced"  # scenarios


def write_halludial(folder: Path, scenario: str, rows: Iterator[Row], division: Division) -> Counter[str]:
    """Writes rows with `response`, `target` and `model` (none of the dataset's own replies); counts them by split.

    Memory holds one row. A split without rows has no file.

    Args:
        folder: A new one (`atomic_folder`).
    """
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        files: dict[str, TextIO] = {}
        for row in rows:
            split = division.split_of(row["dialogue"])
            if split not in files:
                path = folder / scenario / f"{scenario}_{split}.json"
                path.parent.mkdir(exist_ok=True)
                files[split] = stack.enter_context(path.open("w", encoding="utf-8"))
            files[split].write(f"{',' if counts[split] else '['}\n{dumps(official_row(row))}")
            counts[split] += 1
        for file in files.values():
            file.write("\n]\n")
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
