"""Writes constructed rows in the official layouts of RAGTruth, HalluDial, FaithDial and DiaHalu.

The loaders in `data_modules.datasets` read them. Each row also has the chain's key. The layouts of people's answers are
in construction/annotation/settled_layouts.py.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from construction.chain.split_leaks import Division
from construction.chain.steps import KEY, Row, is_failed
from construction.dialogues.dialogue_turns import history_of
from construction.dialogues.turns import turn_name
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, REASONING, TASK
from data_modules.datasets.ragtruth import RESPONSES, SOURCES
from data_modules.reading.fields import WIZARD
from faithkit.files.atomic import dumps, write_json
from faithkit.files.jsonl import write_jsonl
from faithkit.records import HALLUCINATED

GOOD, REFUSED, TRUNCATED = "good", "incorrect_refusal", "truncated"  # values of RAGTruth's `quality`
SPONTANEOUS, INDUCED = "spontaneous", "induced"  # scenarios of HalluDial
FAITHDIAL_FILES = {"train": "train.json", "validation": "valid.json"}  # any other split is test.json
DIAHALU_FILE = "DiaHalu.jsonl"
DIAHALU_DOMAINS = {
    KNOWLEDGE: "World Knowledge",
    TASK: "Task-oriented Style",
    CHAT: "Chit-Chat",
    REASONING: "Reasoning",
}
VERDICT = "verdict"  # field of a dialogue's row: the judgement of a model


def write_ragtruth(
    folder: Path, sources: Iterable[Row], responses: Iterable[Row], division: Division, prompt: Callable[[Row], str]
) -> Counter[str]:
    """Writes RAGTruth's `source_info.jsonl` and `response.jsonl`; counts the responses by split.

    The responses are not annotated yet: their `labels` are empty, which a reader takes for faithful.

    Args:
        prompt: Gives the prompt about a source.
    """
    counts: Counter[str] = Counter()

    def source_lines() -> Iterator[Row]:
        for row in sources:
            head = {"source_id": row[KEY], "task_type": row["task"], "source": row["corpus"]}
            yield {**head, "source_info": row["source_info"], "prompt": prompt(row)}

    def response_lines() -> Iterator[Row]:
        for row in responses:
            split = division.split_of(row["source_id"])
            counts[split] += 1
            yield {
                "id": row[KEY],
                "source_id": row["source_id"],
                "model": row["model"],
                "temperature": row["temperature"],
                "labels": row.get("labels", []),
                "split": split,
                "quality": row["quality"],
                "response": row["response"],
                "null_mentions": row["null_mentions"],
            }

    write_jsonl(folder / SOURCES, source_lines())
    write_jsonl(folder / RESPONSES, response_lines())
    return counts


def write_halludial(folder: Path, scenario: str, rows: Iterable[Row], division: Division) -> Counter[str]:
    """Writes HalluDial's `SCENARIO/SCENARIO_SPLIT.json` (JSON lists) row by row; counts the rows by split.

    A split without rows has no file.

    Args:
        folder: A new one (`atomic_folder`).
        rows: With `response`, `target` and `model` (none for the dataset's reference replies).
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
            files[split].write(f"{',' if counts[split] else '['}\n{dumps(halludial_row(row))}")
            counts[split] += 1
        for file in files.values():
            file.write("\n]\n")
    return counts


def halludial_row(row: Row) -> Row:
    """Converts a row to HalluDial's layout."""
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


def write_faithdial(folder: Path, split: str, rows: Iterable[Row], accepted: Mapping[str, str]) -> dict[str, int]:
    """Writes the turns whose edit was accepted as FaithDial's dialogues, and counts them; no file without any.

    `BEGIN` has the dataset's tags of the original reply, or Hallucination: whoever accepted an edit agreed to that.
    Later histories of the dialogue contain the accepted text. The seeker's next turn may no longer fit; such turns are
    counted.

    Args:
        rows: Turns with their original replies, those of a dialogue in their order.
        accepted: The accepted texts by turn.
    """
    dialogues: dict[str, list[dict[str, Any]]] = {}
    edits: dict[str, dict[str, str]] = {}  # by dialogue: the accepted text of each original
    num_changed = 0
    for row in rows:
        edited = edits.setdefault(row["dialogue"], {})
        text = accepted.get(row[KEY])
        if text is None:
            continue
        original = [turn for _, turn in row["history"]]
        history = [edited.get(turn, turn) if speaker == WIZARD else turn for speaker, turn in row["history"]]
        num_changed += history != original
        dialogues.setdefault(row["dialogue"], []).append(
            {
                "history": history,
                "knowledge": row["knowledge"],
                "response": text,
                "original_response": row["response"],
                "BEGIN": row.get("begin") or ["Hallucination"],
                "VRM": row.get("vrm") or [],
                KEY: row[KEY],
            }
        )
        edited[row["response"]] = text
    path = folder / FAITHDIAL_FILES.get(split, "test.json")
    if not dialogues:  # the loader refuses a file without rows
        path.unlink(missing_ok=True)
        return {}
    write_json(path, [{"dialog_idx": name, "utterances": turns} for name, turns in dialogues.items()])
    return {"accepted edits": sum(map(len, dialogues.values())), "of them behind an edited turn": num_changed}


def write_diahalu(path: Path, rows: Iterable[Row]) -> int:
    """Writes DiaHalu's dialogues, numbered among all rows, and counts them; failed rows are left out.

    No person has judged the dialogues: `label`, `index` and `explaination` are empty. The judgement of a model is in
    fields of its name (`model_label`, `labelled_by`), which the loader reads on request.
    """
    return write_jsonl(path, (diahalu_row(row, i) for i, row in enumerate(rows, start=1) if not is_failed(row)))


def dialogue_text(row: Row) -> str:
    """Writes the turns, a line each, after their names."""
    return "\n".join(f"{turn_name(place)}: {text}" for place, text in enumerate(row["turns"]))


def diahalu_row(row: Row, number: int) -> Row:
    """Converts a dialogue to DiaHalu's layout."""
    return {
        "ID": number,
        "text": dialogue_text(row),
        "label": "",
        "index": "[]",
        "domain": DIAHALU_DOMAINS[row["domain"]],
        "explaination": "[]",
        "source": row["source"],
        "Which LLM": row["model"],
        KEY: row[KEY],
        **(_verdict_fields(row[VERDICT]) if VERDICT in row else {}),
    }


def _verdict_fields(verdict: Mapping[str, Any]) -> dict[str, Any]:
    is_hallucinated = verdict["label"] == HALLUCINATED
    explanation = [verdict["why"]] if is_hallucinated and verdict["why"] else []
    has_place = is_hallucinated and {"round", "type"} <= verdict.keys()
    return {
        "model_label": int(is_hallucinated),
        "model_index": json.dumps([[verdict["round"], verdict["type"]]] if has_place else []),
        "model_explaination": json.dumps(explanation, ensure_ascii=False),
        "labelled_by": verdict["by"],
        **({"model_score": verdict["score"]} if "score" in verdict else {}),
    }
