"""Writes accepted edits in FaithDial's official layout, as `data_modules.datasets.faithdial` reads it.

A JSON list of {dialog_idx, utterances: [{history, knowledge, response, original_response, BEGIN, VRM}]} with the turns
that were edited. `BEGIN` has the dataset's tags of the original reply; where it has none, the person who accepted an
edit has said that it was a hallucination. A later history of the dialogue has the accepted text in the place of the
original: the seeker's turn after it may no longer fit, and is counted.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from construction.chain.chain_rows import KEY, Row
from data_modules.reading.fields import WIZARD
from faithkit.files.atomic import write_json

FILES = {"train": "train.json", "validation": "valid.json"}  # any other split is test.json
HALLUCINATION = "Hallucination"


def write_faithdial(folder: Path, split: str, rows: Iterable[Row], accepted: Mapping[str, str]) -> dict[str, int]:
    """Writes the turns that were accepted, and counts them; no file where none was.

    Args:
        rows: Turns with their original replies; those of a dialogue in their order.
        accepted: The text of each turn that has one.
    """
    dialogues: dict[str, list[dict[str, Any]]] = {}
    said: dict[str, dict[str, str]] = {}  # by dialogue: what stands in the place of the originals
    changed = 0
    for row in rows:
        own = said.setdefault(row["dialogue"], {})
        text = accepted.get(row[KEY])
        if text is None:
            continue
        history = [
            own.get(said_before, said_before) if who == WIZARD else said_before for who, said_before in row["history"]
        ]
        changed += history != [said_before for _, said_before in row["history"]]
        dialogues.setdefault(row["dialogue"], []).append(
            {
                "history": history,
                "knowledge": row["knowledge"],
                "response": text,
                "original_response": row["response"],
                "BEGIN": row.get("begin") or [HALLUCINATION],
                "VRM": row.get("vrm") or [],
                KEY: row[KEY],
            }
        )
        own[row["response"]] = text
    path = folder / FILES.get(split, "test.json")
    if not dialogues:  # a file without rows is none that a loader takes
        path.unlink(missing_ok=True)
        return {}
    write_json(path, [{"dialog_idx": name, "utterances": turns} for name, turns in dialogues.items()])
    return {"accepted edits": sum(map(len, dialogues.values())), "of them behind an edited turn": changed}
