"""Writes settled answers in the official layouts of the schemes' datasets, for the loaders and the papers' scripts.

Each writer gets the rows with their settled answers, and returns counts, also of rows that were left out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from construction.official_layouts import DIAHALU_FILE, GOOD, diahalu_row, halludial_row, write_dialogues
from construction.turns import turn_row
from data_modules.datasets.begin import LAYOUTS as BEGIN_LAYOUTS
from data_modules.datasets.ragtruth import CORPORA, RESPONSES, SOURCES, render
from data_modules.embedded.layouts.common import write_tsv
from data_modules.reading.dialogues import verdict_of
from data_modules.reading.fields import SEEKER
from faithkit.files.atomic import atomic_folder, write_json
from faithkit.files.jsonl import ACCURATE, INACCURATE, write_annotations, write_jsonl
from faithkit.settings.config_files import UNANSWERABLE
from faithkit_papers.annotation.project import AnnotationRow
from faithkit_papers.annotation.schemes import FALLBACK, YES, Answers, rounds_text


class Answered(NamedTuple):
    """A row with its settled answers."""

    row: AnnotationRow
    answers: Answers

    @property
    def model(self) -> str:
        """Names the model that wrote the response."""
        return self.row.system or str(self.row.example.meta.get("model") or "unknown")


def write_layout(scheme: str, folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes the rows in the layout of the scheme's dataset, replacing the folder, and counts them."""
    with atomic_folder(folder, replace=True) as unfinished:
        return WRITERS[scheme](unfinished, answered)


def write_ragtruth(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes RAGTruth's two files; a row without a task is an answer if it has a question, else a summary."""
    counts: Counter[str] = Counter()
    sources: dict[str, dict[str, Any]] = {}
    responses = []
    for one in answered:
        row, example = one.row, one.row.example
        question = next((turn.text for turn in reversed(example.history) if turn.speaker == SEEKER), "")
        task = str(example.meta.get("task") or ("QA" if question else "Summary"))
        info: Any = example.knowledge
        if task == "Data2txt":
            # Lines `name: value`; nested names keep their dots, which reads the same.
            info, last = {}, None
            for line in example.knowledge.split("\n"):
                name, colon, value = line.partition(": ")
                if colon and name not in info:
                    last, info[name] = name, value
                elif last is not None:
                    info[last] += f"\n{line}"
            if render(info) != example.knowledge:
                counts["data-to-text sources that are no list of fields: written as summaries"] += 1
                task, info = "Summary", example.knowledge
        if task == "QA":
            info = {"question": question, "passages": example.knowledge}
        task = task if task in CORPORA else "Summary"
        corpus = str(example.meta.get("corpus") or CORPORA[task])
        source = {"task_type": task, "source": corpus, "source_info": info, "prompt": ""}
        source_id = next((name for name, other in sources.items() if other == source), example.group)
        if sources.setdefault(source_id, source) != source:
            source_id = f"{example.group}:{len(sources)}"
            sources[source_id] = source
        counts["responses"] += 1
        labels = []
        for span in one.answers.get("spans", ()):
            start, end, flags = span["start"], span["end"], span.get("flags", ())
            quoted = {"start": start, "end": end, "text": example.response[start:end]}
            marks = {flag: flag in flags for flag in ("implicit_true", "due_to_null")}
            labels.append({**quoted, "meta": "", "label_type": span["label"], **marks})
        responses.append(
            {
                "id": row.id,
                "source_id": source_id,
                "model": one.model,
                "temperature": example.meta.get("temperature"),
                "labels": labels,
                "split": example.split if example.split in ("train", "test") else "test",
                "quality": (one.answers.get("quality") or [GOOD])[0],
                "response": example.response,
            }
        )
    if responses:
        write_jsonl(folder / SOURCES, ({"source_id": name, **source} for name, source in sources.items()))
        write_jsonl(folder / RESPONSES, responses)
    return counts


def write_faithdial(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes FaithDial's dialogues: the edit is the response, and the tags are about the original one."""
    counts: Counter[str] = Counter()
    for split, rows in _by_split(answered, "train", "validation").items():
        utterances: list[tuple[str, dict[str, Any]]] = []
        for row, answers in rows:
            if not answers.get("begin"):
                counts["left out: no BEGIN tag"] += 1
                continue
            example = row.example
            edit = str(answers.get("edit") or "").strip()
            edited = bool(edit) and edit != example.response.strip()
            counts["edited" if edited else "not edited"] += 1
            utterance = {
                "history": [turn.text for turn in example.history],
                "knowledge": example.knowledge,
                "response": edit if edited else example.response,
                "original_response": example.response if edited else None,
                "BEGIN": answers["begin"],
                "VRM": answers.get("vrm", []),
                **{name: answers[name] for name in ("unsupported", "triggered") if answers.get(name)},
            }
            utterances.append((example.group, utterance))
        write_dialogues(folder, split, utterances)
    return counts


def _by_split(answered: Sequence[Answered], *named: str) -> dict[str, list[Answered]]:
    """Groups the rows by the named splits; all others become the test set, since people have checked them."""
    found: dict[str, list[Answered]] = {}
    for one in answered:
        split = one.row.example.split
        found.setdefault(split if split in named else "test", []).append(one)
    return found


def write_diahalu(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes DiaHalu's dialogues, each with the round and the type of its first hallucination."""
    counts: Counter[str] = Counter()
    rows = []
    for one in answered:
        answers, example = one.answers, one.row.example
        if not answers.get("hallucinated"):
            counts["left out: no verdict"] += 1
            continue
        is_wrong = answers["hallucinated"] == [YES]
        number, types, explanation = answers.get("round"), answers.get("type") or [], answers.get("explanation")
        if is_wrong and not (number and types):
            counts["left out: hallucinated, without round or type"] += 1
            continue
        counts["hallucinated" if is_wrong else "faithful"] += 1
        rows.append(
            diahalu_row(
                one.row.id,
                rounds_text(example),
                int(is_wrong),
                domain=str(example.meta.get("domain") or "knowledge"),
                source=str(example.meta.get("topic_source") or example.source),
                model=one.model,
                index=[[number, types[0]]] if is_wrong else [],
                explanations=[explanation] if is_wrong and explanation else [],
            )
        )
    if rows:
        write_jsonl(folder / DIAHALU_FILE, rows)
    return counts


def write_halludial(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes HalluDial's rows whose judgement is accurate or was corrected, and the verdicts on all judgements.

    annotations.jsonl has the form that meta-judging reads: benchmark=meta_judging.
    """
    counts: Counter[str] = Counter()
    verdicts: dict[str, str] = {}
    for split, rows in _by_split(answered, "train").items():
        written: list[dict[str, Any]] = []
        for row, answers in rows:
            example, verdict = row.example, answers.get("judgement_is")
            if not verdict:
                counts["left out: no verdict"] += 1
                continue
            accurate = verdict == ["Accurate"]
            verdicts[row.id] = ACCURATE if accurate else INACCURATE
            correction = str(answers.get("correction") or "").strip()
            target = example.target if accurate else correction if correction != example.target else ""
            if not target or verdict_of(target) is None:
                counts["left out: inaccurate, without a correction that begins with Yes or No"] += 1
                continue
            counts["accurate" if accurate else "corrected"] += 1
            turn = turn_row(example)
            judged = {"response": example.response, "target": target, "model": example.meta.get("model")}
            written.append(halludial_row(turn | judged | {"turn": example.meta.get("turn", turn["turn"])}))
        if written:
            write_json(folder / f"spontaneous_{split}.json", written)
    write_annotations(folder / "annotations.jsonl", verdicts, [{} for _ in verdicts])
    return counts


def write_begin(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes the verdicts of a human evaluation in BEGIN's layout of 2022, and all ratings as JSON lines.

    A table has no room for tabs and line breaks: they become spaces, and such rows are counted.
    """
    words = {"Faithful": "Fully attributable", "Hallucination": "Not fully attributable", "Generic": "Generic"}
    counts: Counter[str] = Counter()
    rows = []
    for one in answered:
        answers, example = one.answers, one.row.example
        if not answers.get("faithful"):
            counts["left out: not interpretable, or no verdict"] += 1
            continue
        message = example.history[-1].text if example.history else ""
        cells = [one.model, example.source, example.knowledge, message, example.response]
        cells.append(words[answers["faithful"][0]])
        counts["white space made plain"] += any(" ".join(cell.split()) != cell for cell in cells)
        counts["rows"] += 1
        rows.append(cells)
    if rows:
        write_tsv(folder / "begin_test_wow.tsv", rows, header=BEGIN_LAYOUTS["2022"])
    write_ratings(folder, answered)
    return +counts


def write_ratings(folder: Path, answered: Sequence[Answered]) -> Counter[str]:
    """Writes the answers as JSON lines."""
    rows = ((one.row, one.answers) for one in answered)
    lines = ({"id": row.id, "item": row.example.id, "system": row.system, "answers": found} for row, found in rows)
    return Counter({"rows": write_jsonl(folder / "ratings.jsonl", lines)})


WRITERS: Mapping[str, Callable[[Path, Sequence[Answered]], Counter[str]]] = {
    "faithdial": write_faithdial,
    "ragtruth": write_ragtruth,
    "diahalu": write_diahalu,
    "halludial": write_halludial,
    "likert": write_begin,
    UNANSWERABLE: write_ratings,
    FALLBACK: write_ratings,
}
