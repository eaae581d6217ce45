"""Writes settled rows in the official layout of the scheme's dataset, for our loaders and the papers' scripts.

Each writer gets the rows with their settled answers, and returns counts of what was left out and why.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from construction.annotation.dialogue_text import rounds_text
from construction.annotation.ragtruth_layout import Answered, write_ragtruth
from construction.annotation.schemes import YES
from construction.dialogues.turn_rows import turn_row
from construction.halludial import official_row
from data_modules.reading.dialogues import verdict_of
from faithkit.files.atomic import atomic_folder, write_json, write_text
from faithkit.files.jsonl import ACCURATE, INACCURATE, write_annotations, write_jsonl

Writer = Callable[[Path, Sequence[Answered]], Counter[str]]


def write_layout(scheme: str, folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes the rows in the layout of the scheme's dataset, in the place of what was there, and counts them."""
    with atomic_folder(folder, replace=True) as unfinished:
        return WRITERS[scheme](unfinished, answered)


def write_faithdial(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes FaithDial's dialogues: the edit is the response, and the tags are about the original one."""
    counts: Counter[str] = Counter()
    files = {"train": "train.json", "validation": "valid.json"}
    for split, rows in _by_split(answered, "train", "validation").items():
        dialogues: dict[str, list[dict[str, Any]]] = {}
        for row, answers in rows:
            if not answers.get("begin"):
                counts["left out: no BEGIN tag"] += 1
                continue
            example = row.example
            edit = str(answers.get("edit") or "").strip()
            edited = bool(edit) and edit != example.response.strip()
            counts["edited" if edited else "not edited"] += 1
            dialogues.setdefault(example.group, []).append(
                {
                    "history": [turn.text for turn in example.history],
                    "knowledge": example.knowledge,
                    "response": edit if edited else example.response,
                    "original_response": example.response if edited else None,
                    "BEGIN": answers["begin"],
                    "VRM": answers.get("vrm", []),
                }
            )
        rows_of = [{"dialog_idx": name, "utterances": utterances} for name, utterances in dialogues.items()]
        if rows_of:
            write_json(folder / files.get(split, "test.json"), rows_of)
    return counts


def _by_split(answered: Sequence[Answered], *named: str) -> dict[str, list[Answered]]:
    """The rows of the named splits; all others are a test set, since people have checked them."""
    found: dict[str, list[Answered]] = {}
    for one in answered:
        split = one.row.example.split
        found.setdefault(split if split in named else "test", []).append(one)
    return found


def write_diahalu(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes DiaHalu's dialogues, each with the round and the type of its first hallucination."""
    counts: Counter[str] = Counter()
    rows = []
    for row, answers in answered:
        if not answers.get("hallucinated"):
            counts["left out: no verdict"] += 1
            continue
        is_wrong = answers["hallucinated"] == [YES]
        number, types = answers.get("round"), answers.get("type") or []
        if is_wrong and not (number and types):
            counts["left out: hallucinated, without round or type"] += 1
            continue
        example = row.example
        explanation = answers.get("explanation")
        counts["hallucinated" if is_wrong else "faithful"] += 1
        rows.append(
            {
                "ID": row.id,
                "text": rounds_text(example),
                "label": int(is_wrong),
                "index": json.dumps([[number, types[0]]] if is_wrong else []),
                "domain": str(example.meta.get("domain") or "knowledge"),
                "explaination": json.dumps([explanation] if is_wrong and explanation else [], ensure_ascii=False),
                "source": str(example.meta.get("topic_source") or example.source),
                "Which LLM": row.system or str(example.meta.get("model") or "unknown"),
            }
        )
    if rows:
        write_jsonl(folder / "DiaHalu.jsonl", rows)
    return counts


def write_halludial(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes HalluDial's rows whose judgement is accurate or was corrected, and what was said of all judgements.

    annotations.jsonl has the form that meta-judging reads: benchmark=meta_judging.
    """
    counts: Counter[str] = Counter()
    said: dict[str, str] = {}
    for split, rows in _by_split(answered, "train").items():
        written: list[dict[str, Any]] = []
        for row, answers in rows:
            example, verdict = row.example, answers.get("judgement_is")
            if not verdict:
                counts["left out: no verdict"] += 1
                continue
            accurate = verdict == ["Accurate"]
            said[row.id] = ACCURATE if accurate else INACCURATE
            correction = str(answers.get("correction") or "").strip()
            target = example.target if accurate else correction if correction != example.target else ""
            if not target or verdict_of(target) is None:
                counts["left out: inaccurate, without a correction that begins with Yes or No"] += 1
                continue
            counts["accurate" if accurate else "corrected"] += 1
            judged = {"response": example.response, "target": target, "model": example.meta.get("model")}
            if "turn" in example.meta:
                judged["turn"] = example.meta["turn"]
            written.append(official_row(turn_row(example) | judged))
        if written:
            write_json(folder / f"spontaneous_{split}.json", written)
    write_annotations(folder / "annotations.jsonl", said, [{} for _ in said])
    return counts


BEGIN_WORDS = {
    "Faithful": "Fully attributable",
    "Hallucination": "Not fully attributable",
    "Generic": "Generic",
}
BEGIN_HEADER = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")


def write_begin(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes the verdicts of a human evaluation in BEGIN's layout of 2022, and all ratings as JSON lines.

    A table has no room for tabs and line breaks: they become spaces, and such rows are counted.
    """
    counts: Counter[str] = Counter()
    lines = ["\t".join(BEGIN_HEADER)]
    for row, answers in answered:
        if not answers.get("faithful"):
            counts["left out: not interpretable, or no verdict"] += 1
            continue
        example = row.example
        message = example.history[-1].text if example.history else ""
        cells = [row.system or str(example.meta.get("model") or "unknown"), example.source, example.knowledge, message]
        cells += [example.response, BEGIN_WORDS[answers["faithful"][0]]]
        plain = [" ".join(cell.split()) for cell in cells]
        counts["white space made plain"] += plain != cells
        counts["rows"] += 1
        lines.append("\t".join(plain))
    if len(lines) > 1:
        write_text(folder / "begin_test_wow.tsv", "".join(f"{line}\n" for line in lines))
    write_jsonl(folder / "ratings.jsonl", _ratings(answered))
    return +counts


def _ratings(answered: Sequence[Answered]) -> Iterator[dict[str, Any]]:
    for row, answers in answered:
        yield {"id": row.id, "item": row.example.id, "system": row.system, "answers": answers}


WRITERS: Mapping[str, Writer] = {
    "faithdial": write_faithdial,
    "ragtruth": write_ragtruth,
    "diahalu": write_diahalu,
    "halludial": write_halludial,
    "likert": write_begin,
}
