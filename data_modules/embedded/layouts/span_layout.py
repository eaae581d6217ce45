"""Corpora of models' answers to sources: RAGTruth, XSum's summaries, a user's table, benchmarks of detectors."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from data_modules.datasets.claim_sets import AGGREFACT_SETS, TRUE_FILES
from data_modules.datasets.lettucedetect import CODE_AGENT, CODE_SETS, PROSE_SETS, RAGTRUTH
from data_modules.datasets.psiloqa import LANGUAGES
from data_modules.datasets.ragtruth import CORPORA, MESSAGE_FIELDS, MESSAGES, SPANS
from data_modules.datasets.summedits import DOMAINS as DOMAINS_OF_EDITS
from data_modules.datasets.summedits import PREFIX, SPLIT_NAMES
from data_modules.datasets.wice import CLAIM, FOLDERS, TOKENS
from data_modules.datasets.wice import FILES as WICE_FILES
from data_modules.embedded.corpus import REMARK_RATE
from data_modules.embedded.facts import (
    ADDITION,
    DOMAINS,
    KIND_TO_TYPE,
    QUOTED,
    SUBJECTIVE,
    DialogueState,
    Fact,
    added_clause,
    draw_facts,
    draw_kind,
    draw_unknown_relation,
    knowledge_wording,
    span_type,
    true_clause,
    write_sentences,
    wrong_clause,
)
from data_modules.embedded.layouts.common import (
    SPLITS,
    Layout,
    NumRows,
    sizes,
    write_csv,
    write_json,
    write_json_object,
)
from data_modules.embedded.phrasing import PERSONAL, Clause, Plan, Random01, draw_plan, pick, word, write_reply
from faithkit.files.jsonl import write_jsonl
from faithkit.records import FAITHFUL, HALLUCINATED

MODELS = {"chat-small": 0.25, "chat-medium": 0.15, "chat-large": 0.08}  # rates of hallucinated sentences


# The label, category and subcategory of LettuceDetect's data for each type of mark.
LETTUCE_TYPES: dict[str, dict[str, Any]] = {
    "evident_conflict": {"label": "NUMERICAL", "category": "contradiction", "subcategory": "numerical"},
    "subtle_conflict": {"label": "ENTITY", "category": "contradiction", "subcategory": "entity"},
    "evident_baseless": {"label": "CLAIM", "category": "unsupported_addition", "subcategory": "claim"},
    "subtle_baseless": {"label": "FABRICATED", "category": "fabricated_reference", "subcategory": None},
}


class MarkedSpan(NamedTuple):
    """A part of an answer that its source does not support, in characters."""

    start: int
    end: int
    kind: str
    severity: str
    implicit_true: bool
    due_to_null: bool  # it claims something about a field that the source's table leaves empty

    @property
    def type(self) -> str:
        return span_type(self.kind, self.severity)


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's answer to a source."""

    model: str
    text: str
    marks: tuple[MarkedSpan, ...]


@dataclass(frozen=True, slots=True)
class RagSource:
    """All that is known of one topic, as question, passages and table, with the models' answers."""

    number: int
    topic: str
    question: str
    passages: tuple[str, ...]
    table: dict[str, Any]
    answers: tuple[Answer, ...]


class Topic(NamedTuple):
    """The facts that the sentences of an answer draw on."""

    state: DialogueState
    facts: list[Fact]
    null: int  # the relation that the table lists without a value


def rag_sources(split: str, num_answers: int, seed: int) -> Iterator[RagSource]:
    """Yields sources with an answer of every model; the last has fewer where `num_answers` is reached."""
    for number, first in enumerate(range(0, num_answers, len(MODELS))):
        models = list(MODELS)[: num_answers - first]
        random = Random(f"rag:{seed}:{split}:{number}").random
        domain = pick(random, DOMAINS)
        state = DialogueState(domain, domain.full_name.format(word(random, split)), split)
        by_relation: dict[int, Fact] = {}
        passages = []
        while len(by_relation) < 4:  # a passage adds at most four facts, so some relation stays unknown
            known = draw_facts(random, state, int(random() * len(state.domain.relations)))
            by_relation |= {fact.relation: fact for fact in known if fact.relation not in by_relation}
            passages.append(" ".join(write_sentences(random, state, [fact.clause for fact in known])))
        facts = list(by_relation.values())
        null = draw_unknown_relation(random, domain, facts)
        names = [relation.name for relation in state.domain.relations]
        table = {
            "name": state.full_name,
            "category": domain.name,
            "facts": {names[fact.relation]: knowledge_wording(random, fact.value) for fact in facts}
            | {names[null]: None},
        }
        question = domain.relations[pick(random, [fact.relation for fact in facts])].question
        answers = [_answer(random, Topic(state, facts, null), model) for model in models]
        question = f"What is known of {state.full_name}? {question}"
        yield RagSource(number, state.full_name, question, tuple(passages), table, tuple(answers))


def _answers(num_rows: NumRows, splits: tuple[str, ...], seed: int) -> Iterator[tuple[str, RagSource, Answer]]:
    for split, size in sizes(num_rows, splits).items():
        for source in rag_sources(split, size, seed):
            yield from ((split, source, answer) for answer in source.answers)


def _answer(random: Random01, topic: Topic, model: str) -> Answer:
    stated, rest = [], list(topic.facts)
    while rest:  # every fact once, one or two a sentence
        stated.append([rest.pop(int(random() * len(rest))) for _ in range(min(len(rest), 1 + (random() < 0.4)))])
    text, marks = "", []
    for place, facts in enumerate(stated):
        kind = draw_kind(random) if random() < MODELS[model] else ""
        plan = draw_plan(random, topic.state.domain.name, topic.state.full_name, None)
        if place > 0:
            plan = plan._replace(opener="")
        if place < len(stated) - 1:
            plan = plan._replace(tail="")
        sentence, found = _sentence(random, topic, facts, kind, plan)
        text += " " if text else ""
        marks += [mark._replace(start=mark.start + len(text), end=mark.end + len(text)) for mark in found]
        text += sentence
    return Answer(model, text, tuple(marks))


def _sentence(random: Random01, topic: Topic, facts: list[Fact], kind: str, plan: Plan) -> tuple[str, list[MarkedSpan]]:
    """Writes a sentence that states the facts; with a kind of hallucination, some of it is wrong and marked."""
    state = topic.state
    claim, harmless = pick(random, PERSONAL)
    clauses = [true_clause(random, state, fact, QUOTED) for fact in facts]
    remark = Clause(harmless) if random() < REMARK_RATE / 3 else None
    # Of two clauses mostly one is wrong.
    targets: Sequence[int] = range(len(facts)) if random() > 0.7 else (int(random() * len(facts)),)
    severities, due_to_null = {}, set()
    if kind == SUBJECTIVE:
        remark = Clause(claim, 0, len(claim), kind)
    elif kind == ADDITION:
        for i in targets:
            relation = topic.null if random() < 0.5 else draw_unknown_relation(random, state.domain, topic.facts)
            clauses[i] = added_clause(random, state, relation, QUOTED)
            severities[i] = "evident" if len(facts) == 1 else "subtle"  # easily missed next to a correct clause
            if relation == topic.null:
                due_to_null.add(i)
    elif kind:
        for i in targets:
            clauses[i], severities[i] = wrong_clause(random, state, facts[i], topic.facts, QUOTED)
    text, marks = write_reply(plan, clauses, remark)
    # The marks are those of the wrong clauses, in order, and then that of a subjective remark.
    wrong = [*(i for i, clause in enumerate(clauses) if clause.end), len(clauses)]
    found = []
    for (start, end, marked_kind), i in zip(marks, wrong, strict=False):
        # Some additions are annotated as true, though the source does not state them.
        implicit_true = random() < 0.2 and marked_kind == ADDITION and i not in due_to_null
        severity = severities.get(i, "subtle")
        found.append(MarkedSpan(start, end, marked_kind, severity, implicit_true, i in due_to_null))
    return text, found


LABELS = {
    "evident_conflict": "Evident Conflict",
    "subtle_conflict": "Subtle Conflict",
    "evident_baseless": "Evident Baseless Info",
    "subtle_baseless": "Subtle Baseless Info",
}
REFUSAL = "Unable to answer based on given passages."
REFUSAL_EVERY = 50  # one answer in this many refuses, though the source would answer the question


def write_ragtruth(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes RAGTruth: response.jsonl with `num_rows` answers each for train and test, and source_info.jsonl."""
    responses: list[dict[str, Any]] = []
    infos: list[dict[str, Any]] = []
    for split, size in sizes(num_rows, ("train", "test")).items():
        for source in rag_sources(split, size, seed):
            task = list(CORPORA)[source.number % len(CORPORA)]
            numbered = "".join(f"passage {place}:{text}\n\n" for place, text in enumerate(source.passages, start=1))
            shown: Any = {
                "QA": {"question": source.question, "passages": numbered},
                "Summary": " ".join(source.passages) + "\n",
                "Data2txt": source.table,
            }[task]
            source_id = str(10_000 + len(infos))
            info = {"source_id": source_id, "task_type": task, "source": CORPORA[task]}
            infos.append({**info, "source_info": shown, "prompt": ""})
            for answer in source.answers:
                refuses = len(responses) % REFUSAL_EVERY == REFUSAL_EVERY - 1
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
                responses.append(
                    {
                        "id": str(len(responses)),
                        "source_id": source_id,
                        "model": answer.model,
                        "temperature": 0.7,
                        "labels": [] if refuses else labels,
                        "split": split,
                        "quality": "incorrect_refusal" if refuses else "good",
                        "response": REFUSAL if refuses else answer.text,
                    }
                )
    write_jsonl(folder / "source_info.jsonl", infos)
    write_jsonl(folder / "response.jsonl", responses)
    return folder


def write_xsum_tokens(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes token labels: one file with the rows of all splits, in lower case, with escaped quotes."""
    rows: list[dict[str, Any]] = []
    for split, source, answer in _answers(num_rows, SPLITS, seed):
        summary = answer.text.lower().replace("'", "\\'")
        places = [token.span() for token in re.finditer(r"\S+", answer.text)]
        marked = [any(mark.start < end and start < mark.end for mark in answer.marks) for start, end in places]
        source_text = " ".join(source.passages)
        row: dict[str, Any] = {"docid": f"{split}-{source.number}", "system": answer.model, "source": source_text}
        labels = [int(is_marked) for is_marked in marked]
        row |= {"summary": summary, "tokens": summary.split(), "labels": labels, "reference": source.passages[0]}
        rows.append(row)
    write_jsonl(folder / "xsum_token_labels.jsonl", rows)
    return folder


PAIRS_HEADER = ("id", "group", "knowledge", "question", "response", "label", "spans", "model")


def pairs_rows(split: str, size: int, seed: int, start: int) -> Iterator[tuple[str, ...]]:
    """Makes the rows of a table as anyone may have it, with a word as label."""
    for source in rag_sources(split, size, seed):
        group, knowledge = f"{split}-{source.number}", " ".join(source.passages)
        for answer in source.answers:
            spans = [
                {"start": m.start, "end": m.end, "label": m.type, "text": answer.text[m.start : m.end]}
                for m in answer.marks
            ]
            label = HALLUCINATED if spans else FAITHFUL
            made = (knowledge, source.question, answer.text, label, json.dumps(spans), answer.model)
            yield (f"{group}:{answer.model}", group, *made)


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
            text = answer.text
            for mark in reversed(answer.marks):
                text = f"{text[: mark.start]}[HAL]{text[mark.start : mark.end]}[/HAL]{text[mark.end :]}"
            rows.append({**row, "annotated_span": text, "labels": bounds})
        write_jsonl(folder / f"{split}.jsonl", rows)
    return folder


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
            cells = (str(mark.start), str(mark.end), answer.text[mark.start : mark.end], LABELS[mark.type])
            spans.append((*cells, "", f"s{len(spans)}", f"a{number}"))
    write_csv(folder / MESSAGES, messages, header=MESSAGE_FIELDS)
    header = ("start_pos", "end_pos", "span_text", "label", "reasoning", "stable_id", "message_stable_id")
    write_csv(folder / SPANS, spans, header=header)
    return folder


def write_summedits(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes SummEdits: a file for each domain, with the rows of both its splits; sources take turns among them."""
    files: dict[str, list[dict[str, Any]]] = {name: [] for name in DOMAINS_OF_EDITS}
    for split, source, answer in _answers(num_rows, ("validation", "test"), seed):
        rows = files[list(files)[source.number % len(files)]]
        texts = {"doc": " ".join(source.passages), "summary": answer.text, "original_summary": source.passages[0]}
        types = {"conflict": "entity_modification", "baseless": "hallucinated_fact_insertion"}
        edits = sorted({types[KIND_TO_TYPE[mark.kind]] for mark in answer.marks})
        labels = {"label": int(not answer.marks), "edit_types": edits}
        official = next(name for name, own in SPLIT_NAMES.items() if own == split)
        rows.append({"id": f"{split}_{source.number}_{answer.model}", **texts, **labels, "split": official})
    for name, rows in files.items():
        if rows:
            write_json(folder / f"{PREFIX}{name}.json", rows)
    return folder


def write_wice(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes WiCE: the answers as claims, and those with marks as sub-claims with unsupported tokens."""
    for split in sizes(num_rows):
        claims, marked = [], []
        for _, source, answer in _answers(num_rows, (split,), seed):
            label = "partially_supported" if answer.marks else "supported"
            row: dict[str, Any] = {"label": label, "supporting_sentences": [], "claim": answer.text}
            row |= {"evidence": list(source.passages)}
            meta = {"claim_title": source.topic, "claim_section": "", "claim_context": ""}
            name = f"{split}{source.number:05}-{answer.model}"
            claims.append({**row, "meta": {"id": name, **meta}})
            if answer.marks:
                tokens = [(found[0], *found.span()) for found in re.finditer(r"\w+|[^\w\s]", answer.text)]
                is_marked = [any(m.start < end and start < m.end for m in answer.marks) for _, start, end in tokens]
                spans = {"claim_tokens": [text for text, _, _ in tokens], "non_supported_spans": is_marked}
                marked.append({**row, **spans, "meta": {"id": f"{name}-0", **meta}})
        name = WICE_FILES[split]
        for unit, rows in ((f"entailment_retrieval/{FOLDERS[CLAIM]}", claims), (FOLDERS[TOKENS], marked)):
            (folder / unit).mkdir(parents=True, exist_ok=True)
            write_jsonl(folder / unit / f"{name}.jsonl", rows)
    return folder


def write_lettucedetect(folder: Path, num_rows: NumRows = 100, seed: int = 0, *, sets: Sequence[str]) -> Path:
    """Writes LettuceDetect's layout as JSON lines, metadata as text; sources take turns among the sets."""
    for split in sizes(num_rows):
        rows: list[dict[str, Any]] = []
        for _, source, answer in _answers(num_rows, (split,), seed):
            name, passages = sets[source.number % len(sets)], " ".join(source.passages)
            metadata: dict[str, Any] = {"doc_id": f"embedded/{split}-{source.number}"}
            if name == CODE_AGENT:
                metadata["instance_id"] = f"embedded__{split}-{source.number}-{len(rows)}"
            row: dict[str, Any] = {"prompt": f"User request: {source.question}\n\n{passages}", "answer": answer.text}
            context = ("", "") if name == RAGTRUTH else (passages, source.question)
            row |= dict(zip(("context", "question"), context, strict=True))
            row["labels"] = [{"start": m.start, "end": m.end, **LETTUCE_TYPES[m.type]} for m in answer.marks]
            row |= {"split": split, "task_type": "qa", "dataset": name, "language": "en", "context_modality": "prose"}
            rows.append({**row, "metadata": json.dumps(metadata)})
        write_jsonl(folder / f"{split}.jsonl", rows)
    return folder


WRITERS: dict[str, Callable[..., Path]] = {
    "ragtruth": write_ragtruth,
    "xsum_tokens": write_xsum_tokens,
    "pairs": Layout(
        rows=pairs_rows,
        write=partial(write_csv, header=PAIRS_HEADER),
        train="train.csv",
        validation="validation.csv",
        test="test.csv",
    ),
    "aggrefact": write_aggrefact,
    "true_sets": write_true,
    "psiloqa": write_psiloqa,
    "faithbench": write_faithbench,
    "ragtruth_plus_plus": write_ragtruth_plus_plus,
    "summedits": write_summedits,
    "wice": write_wice,
    "lettucedetect_code": partial(write_lettucedetect, sets=CODE_SETS),
    "lettucedetect_prose": partial(write_lettucedetect, sets=PROSE_SETS),
}
