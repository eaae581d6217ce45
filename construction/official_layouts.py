"""Writes constructed rows in the official layouts of RAGTruth, HalluDial, FaithDial and DiaHalu.

The loaders in `data_modules.datasets` read them. Each row also has the chain's key. People's answers are written by
faithkit_papers/annotation/settled_layouts.py, with the rows defined here.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from construction.steps import KEY, Division, Row, is_failed
from construction.turns import history_of, turn_name
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, REASONING, TASK
from data_modules.datasets.ragtruth import RESPONSES, SOURCES
from data_modules.reading.fields import WIZARD
from faithkit.files.atomic import dumps, write_json
from faithkit.files.jsonl import write_jsonl
from faithkit.records import HALLUCINATED

GOOD, REFUSED, TRUNCATED = "good", "incorrect_refusal", "truncated"  # values of RAGTruth's `quality`
SPONTANEOUS, INDUCED = "spontaneous", "induced"  # scenarios of HalluDial
DIAHALU_FILE = "DiaHalu.jsonl"
DIAHALU_DOMAINS = {KNOWLEDGE: "World Knowledge", TASK: "Task-oriented Style", CHAT: "Chit-Chat", REASONING: "Reasoning"}
VERDICT = "verdict"  # field of a dialogue's row: that of a detector


def write_ragtruth(
    folder: Path, sources: Iterable[Row], responses: Iterable[Row], division: Division, prompt: Callable[[Row], str]
) -> Counter[str]:
    """Writes RAGTruth's `source_info.jsonl` and `response.jsonl`; counts the responses by split.

    The responses are not annotated yet: their `labels` are empty, which a reader takes for faithful.

    Args:
        prompt: Gives the prompt about a source.
    """
    counts: Counter[str] = Counter()

    def response_line(row: Row) -> Row:
        split = division.split_of(row["source_id"])
        counts[split] += 1
        row = {"id": row[KEY], "labels": [], "split": split, **row}
        names = ("id", "source_id", "model", "temperature", "labels", "split", "quality", "response")
        return {name: row[name] for name in names}

    lines = (
        {
            "source_id": row[KEY],
            "task_type": row["task"],
            "source": row["corpus"],
            "source_info": row["source_info"],
            "prompt": prompt(row),
        }
        for row in sources
    )
    write_jsonl(folder / SOURCES, lines)
    write_jsonl(folder / RESPONSES, map(response_line, responses))
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
    edits: dict[str, dict[str, str]] = {}  # by dialogue: the accepted text of each original
    utterances: list[tuple[str, Row]] = []
    num_changed = 0
    for row in rows:
        edited = edits.setdefault(row["dialogue"], {})
        if (text := accepted.get(row[KEY])) is None:
            continue
        history = [edited.get(turn, turn) if speaker == WIZARD else turn for speaker, turn in row["history"]]
        num_changed += history != [turn for _, turn in row["history"]]
        tags = {"BEGIN": row.get("begin") or ["Hallucination"], "VRM": row.get("vrm") or [], KEY: row[KEY]}
        texts = {"knowledge": row["knowledge"], "response": text, "original_response": row["response"]}
        utterances.append((row["dialogue"], {"history": history, **texts, **tags}))
        edited[row["response"]] = text
    write_dialogues(folder, split, utterances)
    return {"accepted edits": len(utterances), "of them behind an edited turn": num_changed} if utterances else {}


def write_dialogues(folder: Path, split: str, utterances: Iterable[tuple[str, Row]]) -> None:
    """Writes FaithDial's file of a split; none without utterances, which the loader refuses.

    Args:
        utterances: With the names of their dialogues.
    """
    dialogues: dict[str, list[Row]] = {}
    for name, utterance in utterances:
        dialogues.setdefault(name, []).append(utterance)
    path = folder / {"train": "train.json", "validation": "valid.json"}.get(split, "test.json")
    path.unlink(missing_ok=True)
    if dialogues:
        write_json(path, [{"dialog_idx": name, "utterances": turns} for name, turns in dialogues.items()])


def write_diahalu(path: Path, rows: Iterable[Row]) -> int:
    """Writes DiaHalu's dialogues, numbered among all rows, and counts them; failed rows are left out.

    No person has judged the dialogues: `label`, `index` and `explaination` are empty. The verdict of a detector is in
    fields of its name (`model_label`, `labelled_by`), which the loader reads on request.
    """
    return write_jsonl(path, (dialogue_row(row, i) for i, row in enumerate(rows, start=1) if not is_failed(row)))


def dialogue_row(row: Row, number: int) -> Row:
    """Converts a dialogue to DiaHalu's layout."""
    domain = DIAHALU_DOMAINS[row["domain"]]
    line = diahalu_row(number, dialogue_text(row), "", domain=domain, source=row["source"], model=row["model"])
    line[KEY] = row[KEY]
    if VERDICT in row:
        verdict = row[VERDICT]
        is_hallucinated = verdict["label"] == HALLUCINATED
        explanations = [verdict["why"]] if is_hallucinated and verdict["why"] else []
        line |= {
            "model_label": int(is_hallucinated),
            "model_index": "[]",
            "model_explaination": json.dumps(explanations, ensure_ascii=False),
            "labelled_by": verdict["by"],
            **({"model_score": verdict["score"]} if "score" in verdict else {}),
        }
    return line


def dialogue_text(row: Row) -> str:
    """Writes the turns, a line each, after their names."""
    return "\n".join(f"{turn_name(place)}: {text}" for place, text in enumerate(row["turns"]))


def diahalu_row(
    number: int | str,
    text: str,
    label: int | str,
    *,
    domain: str,
    source: str,
    model: str,
    index: Sequence[Any] = (),
    explanations: Sequence[str] = (),
) -> Row:
    """Makes a row of DiaHalu's layout.

    Args:
        label: 1 for hallucinated; empty before people have judged.
        index: Round and type of each hallucination.
    """
    return {
        "ID": number,
        "text": text,
        "label": label,
        "index": json.dumps(index),
        "domain": domain,
        "explaination": json.dumps(explanations, ensure_ascii=False),
        "source": source,
        "Which LLM": model,
    }
