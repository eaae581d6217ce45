"""Writes settled spans in RAGTruth's two files: the responses with their labels, and their sources."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from construction.annotation.controls import Answers
from construction.annotation.project import AnnotationRow
from construction.ragtruth import GOOD
from data_modules.datasets.ragtruth import RESPONSES, SOURCES, render
from data_modules.reading.fields import SEEKER
from faithkit.files.jsonl import write_jsonl
from faithkit.records import Example


class Answered(NamedTuple):
    """A row with its settled answers."""

    row: AnnotationRow
    answers: Answers


TASKS = {"QA": "MARCO", "Summary": "CNN/DM", "Data2txt": "Yelp"}


def write_ragtruth(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes RAGTruth's two files. A row that names no task is an answer to a question, or else a summary."""
    counts: Counter[str] = Counter()
    sources: dict[str, dict[str, Any]] = {}
    responses = []
    for row, answers in answered:
        example = row.example
        source = _source(example, counts)
        names = [name for name, other in sources.items() if other == source]
        source_id = (
            names[0] if names else example.group if example.group not in sources else f"{example.group}:{len(sources)}"
        )
        sources[source_id] = source
        counts["responses"] += 1
        responses.append(
            {
                "id": row.id,
                "source_id": source_id,
                "model": row.system or str(example.meta.get("model", "unknown")),
                "temperature": example.meta.get("temperature"),
                "labels": [_label(span, example.response) for span in answers.get("spans", ())],
                "split": example.split if example.split in ("train", "test") else "test",
                "quality": (answers.get("quality") or [GOOD])[0],
                "response": example.response,
            }
        )
    if responses:
        write_jsonl(folder / SOURCES, ({"source_id": name, **source} for name, source in sources.items()))
        write_jsonl(folder / RESPONSES, responses)
    return counts


def _label(span: Any, response: str) -> dict[str, Any]:
    flags = span.get("flags", ())
    return {
        "start": span["start"],
        "end": span["end"],
        "text": response[span["start"] : span["end"]],
        "meta": "",
        "label_type": span["label"],
        "implicit_true": "implicit_true" in flags,
        "due_to_null": "due_to_null" in flags,
    }


def _source(example: Example, counts: Counter[str]) -> dict[str, Any]:
    question = next((turn.text for turn in reversed(example.history) if turn.speaker == SEEKER), "")
    task = str(example.meta.get("task") or ("QA" if question else "Summary"))
    info: Any = example.knowledge
    if task == "Data2txt":
        info = _fields(example.knowledge)
        if render(info) != example.knowledge:
            counts["data-to-text sources that are no list of fields: written as summaries"] += 1
            task, info = "Summary", example.knowledge
    if task == "QA":
        info = {"question": question, "passages": example.knowledge}
    task = task if task in TASKS else "Summary"
    return {
        "task_type": task,
        "source": str(example.meta.get("corpus") or TASKS[task]),
        "source_info": info,
        "prompt": "",
    }


def _fields(text: str) -> dict[str, str]:
    """Reads the lines `name: value` of a data source back; nested names keep their dots, which reads the same."""
    found: dict[str, str] = {}
    last = None
    for line in text.split("\n"):
        name, colon, value = line.partition(": ")
        if colon and name not in found:
            last, found[name] = name, value
        elif last is not None:
            found[last] += f"\n{line}"
    return found
