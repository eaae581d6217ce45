"""Benchmarks of detectors: LLM-AggreFact, TRUE, PsiloQA, FaithBench, RAGTruth++, SummEdits, WiCE, LettuceDetect's."""

import json
from typing import Any

from tests.data_modules.official import LAKE, Rows

INN = "The Orvel Inn has twelve rooms. It opens in May."
CLAIMS = [
    ("AggreFact-CNN", LAKE, "Lake Orvel is deep.", 1),
    ("AggreFact-CNN", LAKE, "Lake Orvel is in the south.", 0),
    ("Wice", INN, "The inn has twelve rooms.", 1),
    ("Wice", INN, "The inn has a pool.", 0),
    ("Wice", LAKE, "The plateau has deeper lakes.", 0),
    ("FactCheck-GPT", INN, "The inn opens in May.", 1),
    ("FactCheck-GPT", INN, "The inn opens in June.", 0),
]
AGGREFACT: Rows = [
    {"dataset": name, "doc": document, "claim": claim, "label": label, "contamination_identifier": "f00d" * 16}
    for name, document, claim, label in CLAIMS
]
TRUE_SETS: Rows = [
    {"": str(number), "model": "a", "grounding": document, "generated_text": claim, "label": str(label)}
    for number, (_, document, claim, label) in enumerate(CLAIMS)
]


def psiloqa(number: int, lang: str, answer: str, *marked: str) -> dict[str, Any]:
    """A row of PsiloQA, with these parts of the answer marked."""
    bounds, tagged = [], answer
    for text in marked:
        bounds.append([answer.index(text), answer.index(text) + len(text)])
        tagged = tagged.replace(text, f"[HAL]{text}[/HAL]", 1)
    page = {"wiki_title": "Orvel", "wiki_url": "https://example.org", "wiki_passage": LAKE if number % 2 else INN}
    asked = {"question": "What is Orvel?", "golden_answer": "A lake.", "llm_answer": answer, "annotated_span": tagged}
    return {"id": f"{lang}_{number}", "lang": lang, "llm_checkpoint": "small", "labels": bounds, **page, **asked}


PSILOQA: Rows = [
    psiloqa(1, "en", "A lake of the southern coast.", "southern coast"),
    psiloqa(2, "en", "An inn with twelve rooms."),
    psiloqa(3, "fi", "Järvi, jonka syvyys on 90 metriä 🌊.", "90 metriä"),
    psiloqa(4, "fi", "Majatalo avataan kesäkuussa, ja siinä on uima-allas.", "kesäkuussa", "uima-allas"),
    psiloqa(5, "zh", "奥维尔湖很深。"),
]


def note(summary: str, text: str, *labels: str, annotator: str = "a") -> dict[str, Any]:
    """An annotation of FaithBench."""
    start = summary.index(text)
    bounds = {"summary_span": text, "summary_start": start, "summary_end": start + len(text)}
    return {"annot_id": 1, "annotator_id": annotator, "annotator_name": "", "label": [*labels], "note": "", **bounds}


def sample(number: int, summary: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    """A sample of FaithBench."""
    metadata = {"summarizer": f"maker/model-{number % 2}", "raw_sample_id": number}
    texts = {"source": INN, "summary": summary}
    return {"sample_id": number, **texts, "annotations": [*annotations], "metadata": metadata}


POOL, ROOMY = "The inn has twelve rooms and a pool.", "A roomy inn opens in May."
POOL_NOTES = [
    note(POOL, "a pool", "Unwanted", "Unwanted.Extrinsic"),
    note(POOL, "a pool", "Questionable", annotator="b"),
    note(POOL, "and a pool", "Benign", annotator="c"),
]
ROOMY_NOTES = [note(ROOMY, "roomy", *labels) for labels in (["Questionable"], ["Benign"], [])]
FAITHBENCH: Rows = [
    {
        "samples": [
            sample(0, "The inn has twelve rooms."),
            sample(1, POOL, *POOL_NOTES),
            *(sample(number, ROOMY, one) for number, one in enumerate(ROOMY_NOTES, 2)),
        ]
    }
]


def message(name: str, role: str, position: int, text: str, thread: str) -> dict[str, Any]:
    """A row of RAGTruth++'s messages."""
    meta = '{"model": "small", "original_id": "17"}'
    where = {"position": str(position), "text": text, "message_thread_stable_id": thread}
    return {"stable_id": name, "meta": meta, "role": role, **where}


def span(message_id: str, start: int, end: int, text: str, label: str = "Evident Conflict") -> dict[str, Any]:
    """A row of RAGTruth++'s spans."""
    bounds = {"start_pos": str(start), "end_pos": str(end), "span_text": text, "label": label}
    return {**bounds, "reasoning": "", "stable_id": f"{message_id}-{start}", "message_stable_id": message_id}


MESSAGES: Rows = [
    message("a1", "assistant", 1, "It has ten rooms,\nand a pool.", "t1"),
    message("u1", "user", 0, f"Describe it, by this text: {INN}", "t1"),
    message("u2", "user", 0, f"How deep is it? {LAKE}", "t2"),
    message("a2", "assistant", 1, "It is deep.", "t2"),
]
PLUS_PLUS_SPANS: Rows = [span("a1", 22, 28, "a pool", "Invented"), span("a1", 7, 16, "ten rooms")]


def edited(number: int, summary: str, label: int, *edits: str, split: str = "test") -> dict[str, Any]:
    """A row of SummEdits."""
    texts = {"doc": INN if split == "test" else LAKE, "summary": summary, "original_summary": "The inn has rooms."}
    return {"id": f"news_{number}", **texts, "label": label, "edit_types": [*edits], "split": split}


SUMMEDITS: Rows = [
    edited(0, "The inn has twelve rooms.", 1),
    edited(1, "The inn has ten rooms.", 0, "entity_modification"),
    edited(2, "The inn has no rooms and closes in May.", 0, "antonym_swap", "negation_insertion_removal"),
    edited(3, "The lake is deep.", 1, "antonym_swap", split="evaluation"),
]


def claim(name: str, text: str, label: str, **values: Any) -> dict[str, Any]:
    """A row of WiCE."""
    meta = {"id": name, "claim_title": "Orvel Inn", "claim_section": "Rooms.", "claim_context": "It is an inn."}
    evidence = ["(meta data) TITLE: The Orvel Inn", "The Orvel Inn has twelve rooms.", "It opens in May."]
    found = {"label": label, "supporting_sentences": [[1]], "claim": text, "evidence": evidence, "meta": meta}
    return {**values, **found}


WICE: Rows = [
    claim("dev1", "The inn has twelve rooms.", "supported"),
    claim("dev2", "The inn has ten rooms, and a pool.", "partially_supported"),
    claim("dev3", "The inn is closed.", "not_supported"),
]
WICE_TOKENS: Rows = [
    claim(
        "dev2-0",
        "The inn has ten rooms, and a pool.",
        "partially_supported",
        claim_tokens=["The", "inn", "has", "ten", "rooms", ",", "and", "a", "\xa0", "pool", "."],
        non_supported_spans=[False, False, False, True, False, False, False, True, False, True, False],
    )
]


def lettuce(dataset: str, answer: str, *marked: tuple[str, str, str, str | None], **values: Any) -> dict[str, Any]:
    """A row of LettuceDetect's data: a mark is text, label, category and subcategory."""
    bounds = [(answer.index(text), answer.index(text) + len(text)) for text, *_ in marked]
    labels = [
        {"start": start, "end": end, "label": label, "category": category, "subcategory": subcategory}
        for (start, end), (_, label, category, subcategory) in zip(bounds, marked, strict=True)
    ]
    asked = {"question": "How many rooms?", "context": INN, "prompt": f"User request: How many rooms?\n\n{INN}"}
    facts = {"split": "test", "task_type": "qa", "dataset": dataset, "language": "en", "context_modality": "markdown"}
    first = labels[0] if labels else {"category": None, "subcategory": None}
    types = {name: first[name] for name in ("category", "subcategory")}
    return {**asked, "answer": answer, "labels": labels, **facts, **types, "metadata": "{}"} | values


AGENT_ANSWER = "In inn.py, replace rooms(10) with inn.open_rooms(12, pool=True)."
LETTUCE_CODE: Rows = [
    lettuce(
        "lettucedetect-code-agent",
        AGENT_ANSWER,
        ("open_rooms", "fabricated_api", "fabricated_reference", "identifier"),
        ("pool=True", "unrequested_change", "unsupported_addition", "behavior"),
        metadata=json.dumps({"instance_id": "orvel__inn-tools-17", "is_hallucinated": True}),
        context_modality="code",
    ),
    lettuce("lettucedetect-tool-output", "Twelve.", metadata={"instance_id": "orvel__inn-tools-4", "repo": ""}),
    lettuce("lettucedetect-readme", "It has 12.", metadata=json.dumps({"doc_id": "orvel/inn-tools"})),
    lettuce("lettucedetect-acl", "It has 12.", metadata=json.dumps({"paper_id": "P17-1", "question": "How many?"})),
    lettuce("lettucedetect-wikipedia", "10.", ("10", "NUMERICAL", "contradiction", "numerical"), metadata=None),
]
LETTUCE_PROSE: Rows = [
    lettuce("psiloqa", "Kymmenen.", ("Kymmenen", "hallucination", "contradiction", "numerical"), language="fi"),
    lettuce("ragtruth", "It is old.", ("old", "Evident Conflict", "contradiction", None), context=None, question=None),
]
