"""Writes self-dialogues in DiaHalu's official layout, as `data_modules.datasets.diahalu` reads it.

JSON lines of {ID, text, label, index, domain, explaination, source, Which LLM}. No person has judged the dialogues yet:
`label` is empty, and so are `index` and `explaination`. The chain's key stands beside them. What a model says stands
under `model_label`, `model_index`, `model_explaination` and `labelled_by`: the loader reads it where it is asked to.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from construction.chain.chain_rows import KEY, Row, is_hole
from construction.dialogues.turns import turn_name
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, REASONING, TASK
from faithkit.files.jsonl import write_jsonl
from faithkit.records import HALLUCINATED

NAME = "DiaHalu.jsonl"
VERDICT = "verdict"  # of a row: what a model says of the dialogue
SPELT = {KNOWLEDGE: "World Knowledge", TASK: "Task-oriented Style", CHAT: "Chit-Chat", REASONING: "Reasoning"}


def write_diahalu(path: Path, rows: Iterable[Row]) -> int:
    """Writes the dialogues, numbered by their places among all rows, and counts them; holes are left out."""
    return write_jsonl(path, (official_row(row, i) for i, row in enumerate(rows, start=1) if not is_hole(row)))


def dialogue_text(row: Row) -> str:
    """Writes the turns, a line each, behind their names."""
    return "\n".join(f"{turn_name(place)}: {text}" for place, text in enumerate(row["turns"]))


def official_row(row: Row, number: int) -> Row:
    """Makes the row that the file has."""
    return {
        "ID": number,
        "text": dialogue_text(row),
        "label": "",
        "index": "[]",
        "domain": SPELT[row["domain"]],
        "explaination": "[]",
        "source": row["source"],
        "Which LLM": row["model"],
        KEY: row[KEY],
        **(_of_model(row[VERDICT]) if VERDICT in row else {}),
    }


def _of_model(verdict: dict[str, Any]) -> dict[str, Any]:
    is_wrong = verdict["label"] == HALLUCINATED
    place = [[verdict["round"], verdict["type"]]] if is_wrong and {"round", "type"} <= verdict.keys() else []
    explanation = [verdict["why"]] if is_wrong and verdict["why"] else []
    return {
        "model_label": int(is_wrong),
        "model_index": json.dumps(place),
        "model_explaination": json.dumps(explanation, ensure_ascii=False),
        "labelled_by": verdict["by"],
        **({"model_score": verdict["score"]} if "score" in verdict else {}),
    }
