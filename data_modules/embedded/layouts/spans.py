"""Corpora with marked spans: RAGTruth, token labels on summaries of XSum, and the plain layouts."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.answers import Answer, RagSource, rag_sources
from data_modules.embedded.layouts.common import NumRows, sizes, write_jsonl
from faithkit.records import FAITHFUL, HALLUCINATED

TASKS = {"QA": "MARCO", "Summary": "CNN/DM", "Data2txt": "Yelp"}
LABELS = {
    "evident_conflict": "Evident Conflict",
    "subtle_conflict": "Subtle Conflict",
    "evident_baseless": "Evident Baseless Info",
    "subtle_baseless": "Subtle Baseless Info",
}
REFUSAL = "Unable to answer based on given passages."
REFUSAL_EVERY = 50  # one answer in this many refuses, though the source would answer the question
SPAN_FILES = {"train": "train.jsonl", "validation": "validation.jsonl", "test": "test.jsonl"}


def write_ragtruth(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes RAGTruth: response.jsonl with `num_rows` answers each for train and test, and source_info.jsonl."""
    responses: list[dict[str, Any]] = []
    infos: list[dict[str, Any]] = []
    for split, size in sizes(num_rows, ("train", "test")).items():
        for source in rag_sources(split, size, seed):
            task = list(TASKS)[source.number % len(TASKS)]
            infos.append(_info(source, task, source_id=str(10_000 + len(infos))))
            for answer in source.answers:
                responses.append(_response(answer, task, split, str(len(responses)), infos[-1]["source_id"]))
    write_jsonl(folder / "source_info.jsonl", infos)
    write_jsonl(folder / "response.jsonl", responses)
    return folder


def _info(source: RagSource, task: str, source_id: str) -> dict[str, Any]:
    numbered = "".join(f"passage {place}:{text}\n\n" for place, text in enumerate(source.passages, start=1))
    shown: Any = {
        "QA": {"question": source.question, "passages": numbered},
        "Summary": " ".join(source.passages) + "\n",
        "Data2txt": source.table,
    }[task]
    return {"source_id": source_id, "task_type": task, "source": TASKS[task], "source_info": shown, "prompt": ""}


def _response(answer: Answer, task: str, split: str, response_id: str, source_id: str) -> dict[str, Any]:
    refuses = int(response_id) % REFUSAL_EVERY == REFUSAL_EVERY - 1
    shows_null = task == "Data2txt"  # only tables have empty fields
    labels = [
        {
            "start": mark.start,
            "end": mark.end,
            "text": answer.text[mark.start : mark.end],
            "meta": "",
            "label_type": LABELS[mark.type],
            "implicit_true": mark.implicit_true,
            "due_to_null": mark.due_to_null and shows_null,
        }
        for mark in answer.marks
    ]
    return {
        "id": response_id,
        "source_id": source_id,
        "model": answer.model,
        "temperature": 0.7,
        "labels": [] if refuses else labels,
        "split": split,
        "quality": "incorrect_refusal" if refuses else "good",
        "response": REFUSAL if refuses else answer.text,
    }


def write_xsum_tokens(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes token labels: one file with the rows of all splits, in lower case, with escaped quotes."""
    rows = (
        _summary(source, answer, split)
        for split, size in sizes(num_rows).items()
        for source in rag_sources(split, size, seed)
        for answer in source.answers
    )
    write_jsonl(folder / "xsum_token_labels.jsonl", rows)
    return folder


def _summary(source: RagSource, answer: Answer, split: str) -> dict[str, Any]:
    tokens = list(re.finditer(r"\S+", answer.text))
    marked = [any(mark.start < token.end() and token.start() < mark.end for mark in answer.marks) for token in tokens]
    return {
        "docid": f"{split}-{source.number}",
        "system": answer.model,
        "source": " ".join(source.passages),
        "summary": _escaped(answer.text),
        "tokens": [_escaped(token[0]) for token in tokens],
        "labels": [int(is_marked) for is_marked in marked],
        "reference": source.passages[0],
    }


def _escaped(text: str) -> str:
    return text.lower().replace("'", "\\'")


def write_spans(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes the plain layout: train.jsonl, validation.jsonl and test.jsonl."""
    for split, size in sizes(num_rows).items():
        write_jsonl(folder / SPAN_FILES[split], _plain(split, size, seed))
    return folder


def _plain(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    for source in rag_sources(split, size, seed):
        for answer in source.answers:
            spans = [
                {"start": m.start, "end": m.end, "label": m.type, "text": answer.text[m.start : m.end]}
                for m in answer.marks
            ]
            yield {
                "id": f"{split}-{source.number}:{answer.model}",
                "group": f"{split}-{source.number}",
                "context": " ".join(source.passages),
                "question": source.question,
                "answer": answer.text,
                "spans": spans,
                "model": answer.model,
            }


def write_pairs(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes a table as anyone may have it: train.csv, validation.csv and test.csv with a word as label."""
    for split, size in sizes(num_rows).items():
        path = (folder / SPAN_FILES[split]).with_suffix(".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", "group", "knowledge", "question", "response", "label", "spans", "model"])
            for row in _plain(split, size, seed):
                own = [row[name] for name in ("id", "group", "context", "question", "answer")]
                label = HALLUCINATED if row["spans"] else FAITHFUL
                writer.writerow([*own, label, json.dumps(row["spans"]), row["model"]])
    return folder
