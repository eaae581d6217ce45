"""Writes self-dialogues in DiaHalu's official layout, as `data_modules.datasets.diahalu` reads it.

JSON lines of {ID, text, label, index, domain, explaination, source, Which LLM}. Nobody has judged the dialogues yet:
`label` is empty, and so are `index` and `explaination`. The chain's key stands beside them.
"""

from collections.abc import Iterable
from pathlib import Path

from construction.rows import KEY, Row, is_hole
from construction.turns import turn_name
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, REASONING, TASK
from faithkit.files.jsonl import write_jsonl

NAME = "DiaHalu.jsonl"
SPELT = {KNOWLEDGE: "World Knowledge", TASK: "Task-oriented Style", CHAT: "Chit-Chat", REASONING: "Reasoning"}


def write_diahalu(path: Path, rows: Iterable[Row]) -> int:
    """Writes the dialogues, numbered by their places among all rows, and counts them; holes are left out."""
    return write_jsonl(path, (official_row(row, i) for i, row in enumerate(rows, start=1) if not is_hole(row)))


def official_row(row: Row, number: int) -> Row:
    """Makes the row that the file has."""
    return {
        "ID": number,
        "text": "\n".join(f"{turn_name(place)}: {text}" for place, text in enumerate(row["turns"])),
        "label": "",
        "index": "[]",
        "domain": SPELT[row["domain"]],
        "explaination": "[]",
        "source": row["source"],
        "Which LLM": row["model"],
        KEY: row[KEY],
    }
