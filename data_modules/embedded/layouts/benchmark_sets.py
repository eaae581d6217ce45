"""Benchmarks of detectors in their official layouts, with answers to the embedded sources."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.datasets.claim_sets import AGGREFACT_SETS, TRUE_FILES
from data_modules.datasets.psiloqa import LANGUAGES
from data_modules.datasets.ragtruth_plus_plus import MESSAGE_FIELDS, MESSAGES, SPANS
from data_modules.embedded.layouts.common import NumRows, sizes, write_csv, write_json_object
from data_modules.embedded.layouts.span_layout import LABELS as RAGTRUTH_LABELS
from data_modules.embedded.layouts.span_layout import Answer, RagSource, rag_sources
from faithkit.files.jsonl import write_jsonl


def _answers(num_rows: NumRows, splits: tuple[str, ...], seed: int) -> Iterator[tuple[str, RagSource, Answer]]:
    for split, size in sizes(num_rows, splits).items():
        for source in rag_sources(split, size, seed):
            yield from ((split, source, answer) for answer in source.answers)


def write_aggrefact(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes LLM-AggreFact's dev and test rows as JSON lines; sources take turns among its sets."""
    for split in sizes(num_rows, ("validation", "test")):
        rows = [
            {
                "dataset": AGGREFACT_SETS[source.number % len(AGGREFACT_SETS)],
                "doc": " ".join(source.passages),
                "claim": answer.text,
                "label": int(not answer.marks),
                "contamination_identifier": "",
            }
            for _, source, answer in _answers(num_rows, (split,), seed)
        ]
        write_jsonl(folder / f"{'dev' if split == 'validation' else split}.jsonl", rows)
    return folder


def write_true(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes TRUE: a file for each set, with the number of each row as pandas writes it; sources take turns."""
    files: dict[str, list[tuple[str, ...]]] = {name: [] for name in TRUE_FILES}
    for _, source, answer in _answers(num_rows, ("test",), seed):
        rows = files[list(TRUE_FILES)[source.number % len(TRUE_FILES)]]
        rows.append((str(len(rows)), " ".join(source.passages), answer.text, str(int(not answer.marks))))
    for name, rows in files.items():
        if rows:
            write_csv(folder / f"{name}.csv", rows, header=("", "grounding", "generated_text", "label"))
    return folder


def write_psiloqa(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes PsiloQA as JSON lines; sources take turns among its languages, and their texts stay English."""
    for split in sizes(num_rows):
        rows = []
        for number, (_, source, answer) in enumerate(_answers(num_rows, (split,), seed)):
            bounds = [[mark.start, mark.end] for mark in answer.marks]
            row = {"id": f"{split}_{number}", "lang": LANGUAGES[source.number % len(LANGUAGES)]}
            row |= {"llm_checkpoint": answer.model, "wiki_passage": " ".join(source.passages)}
            row |= {"question": source.question, "golden_answer": source.passages[0], "llm_answer": answer.text}
            rows.append({**row, "annotated_span": _with_tags(answer), "labels": bounds})
        write_jsonl(folder / f"{split}.jsonl", rows)
    return folder


def _with_tags(answer: Answer) -> str:
    text = answer.text
    for mark in reversed(answer.marks):
        text = f"{text[: mark.start]}[HAL]{text[mark.start : mark.end]}[/HAL]{text[mark.end :]}"
    return text


def write_faithbench(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes FaithBench's batches, of fifty samples each; additions that are true are benign."""
    samples: list[dict[str, Any]] = []
    for _, source, answer in _answers(num_rows, ("test",), seed):
        notes: list[dict[str, Any]] = []
        for mark in answer.marks:
            kind = "Intrinsic" if "conflict" in mark.type else "Extrinsic"
            label = ["Benign"] if mark.implicit_true else ["Unwanted", f"Unwanted.{kind}"]
            bounds = {"summary_start": mark.start, "summary_end": mark.end}
            text = answer.text[mark.start : mark.end]
            notes.append({"annot_id": len(notes), "annotator_id": "a", "label": label, "summary_span": text, **bounds})
        texts = {"source": " ".join(source.passages), "summary": answer.text}
        metadata = {"summarizer": answer.model}
        samples.append({"sample_id": len(samples) % 50, **texts, "annotations": notes, "metadata": metadata})
    for start in range(0, len(samples), 50):
        name = f"batch_{start // 50 + 1}.json"
        write_json_object(folder / "data_for_release" / name, {"samples": samples[start : start + 50]})
    return folder


def write_ragtruth_plus_plus(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes RAGTruth++: a thread of a prompt and an answer for each answer, and the spans."""
    messages: list[tuple[str, ...]] = []
    spans: list[tuple[str, ...]] = []
    for number, (_, source, answer) in enumerate(_answers(num_rows, ("test",), seed)):
        thread, meta = f"t{number}", json.dumps({"model": answer.model, "original_id": str(number)})
        prompt = f"{source.question}\n{' '.join(source.passages)}"
        messages += [(f"u{number}", meta, "user", "0", prompt, thread)]
        messages += [(f"a{number}", meta, "assistant", "1", answer.text, thread)]
        for mark in answer.marks:
            cells = (str(mark.start), str(mark.end), answer.text[mark.start : mark.end], RAGTRUTH_LABELS[mark.type])
            spans.append((*cells, "", f"s{len(spans)}", f"a{number}"))
    write_csv(folder / MESSAGES, messages, header=MESSAGE_FIELDS)
    header = ("start_pos", "end_pos", "span_text", "label", "reasoning", "stable_id", "message_stable_id")
    write_csv(folder / SPANS, spans, header=header)
    return folder
