"""Rows of our own invention in every dataset's official layout, and helpers to write and read them.

Each dataset: the official name of a file, and rows that give at least one example each.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from faithkit.records import Example

Rows = list[dict[str, Any]]
LAKE = "Lake Orvel is the deepest lake of the northern plateau."


def utterance(
    history: list[str], response: str, original: str | None, tags: list[str] | None, knowledge: str = LAKE
) -> dict[str, Any]:
    return {
        "history": history,
        "knowledge": knowledge,
        "response": response,
        "original_response": original,
        "BEGIN": tags,
        "VRM": ["Edification"] if tags else None,
    }


SAID = ["Do you know any lakes?"]
FAITHDIAL: Rows = [
    {
        "dialog_idx": 4,
        "utterances": [
            utterance(SAID, "Lake Orvel is very deep.", "I swam in Lake Orvel once.", ["Hallucination"]),
            utterance([*SAID, "It is.", "How deep?"], "The deepest up there.", "Deepest, I think!", ["Entailment"]),
            utterance(SAID, "It is the deepest lake.", None, ["Entailment", "Uncooperative"]),
            utterance(SAID, "My uncle fishes there.", None, ["Hallucination"]),
        ],
    },
    {
        "dialog_idx": 7,
        "utterances": [
            utterance(SAID, "It is deep.", "It is deep, and cold.", ["Hallucination", "Entailment"]),
            utterance(SAID, "A deep lake!", "Oh, nice!", ["Generic"]),
            utterance(SAID, "Sure thing.", "Sure thing. ", ["Generic"]),
            utterance(SAID, "Orvel is on a plateau.", "On a plateau.", ["Uncooperative"]),
        ],
    },
]
WOW: Rows = [
    {"dialog_idx": 0, "utterances": [utterance(SAID, "Lake Orvel, of course.", None, None)]},
    {"dialog_idx": 1, "utterances": [utterance(["Hi", *SAID], "Orvel is deep.", None, None)]},
]
WOW_PARLAI: Rows = [
    {
        "chosen_topic": "Lake Orvel",
        "persona": "i like water",
        "wizard_eval": 4,
        "chosen_topic_passage": [LAKE],
        "dialog": [
            {
                "speaker": "0_Wizard",
                "text": "Lakes are fine.",
                "checked_sentence": {"no_passages_used": "no_passages_used"},
            },
            {"speaker": "1_Apprentice", "text": "Which one is deep?", "retrieved_passages": []},
            {"speaker": "0_Wizard", "text": "Orvel is.", "checked_sentence": {"self_Lake_Orvel_0": LAKE}},
            {"speaker": "1_Apprentice", "text": "Thanks"},
            {"speaker": "0_Wizard", "text": "Welcome.", "checked_sentence": {}},
        ],
    },
]
TURNS: Rows = [
    {"conv": "c1", "history": SAID, "knowledge": LAKE, "response": "Lake Orvel is very deep.", "rating": 2},
    {"conv": "c1", "history": ["Hi", *SAID], "knowledge": LAKE, "response": "It is the deepest.", "rating": 2},
]
BEGIN: Rows = [
    {
        "model_name": model,
        "data_source": "wow",
        "knowledge": knowledge,
        "message": message,
        "response": response,
        "begin_label": label,
    }
    for model, knowledge, message, response, label in [
        ("gpt2", LAKE, 'what is "deep"?', "lake orvel is", "Fully attributable"),
        (
            "t5",
            "lake orvel is the deepest lake of the northern plateau .",
            "and?",
            "i love it",
            "Not fully attributable",
        ),
        ("ctrl", "Mount Sel has two peaks.", "", "it has two peaks", "Fully attributable"),
        ("doha", "Mount Sel has two peaks.", "really?", "yes", "Generic"),
    ]
]
BEGIN_2021: Rows = [
    {
        "evidence": LAKE,
        "previous turn": "tell me",
        "response": f"reply {number}",
        "gold label": label,
        "coarse label": "neutral",
        "full label set": "not-generic;on-topic;cooperative;faithful",
    }
    for number, label in enumerate(["entailment", "hallucination", "off-topic", "contradiction", "generic"])
]
AUDIT_GOLD: Rows = [
    {"evidence": LAKE, "history": "a lake?", "response": f"reply {n}", "BEGIN": label, "VRM": "disclosure,\nquestion"}
    for n, label in enumerate(["Entailment", "Hallucination", "Partial Hallucination", "Uncooperative", "Generic"])
]
AUDIT_DOHA: Rows = [
    {"knowledge": LAKE, "history": said, "doha": response, "begin_label": label, "vrm_label": "edification,ack."}
    for said, response, label in [
        ("", " Deep", "entailment"),
        ("so?", "deep and blue", "entailment,hallucination"),
        ("so?", "deep", "entailmentt,uncooperative"),
        ("so?", "", "generic"),
        ("so?", "ok", "generic"),
    ]
]
AUDIT_GPT2: Rows = [
    {"knowledge": LAKE, "history": "x", "gpt2": "deep", "begin_label": "entailment. uncooperative", "vrm_label": ""}
]
MNLI: Rows = [
    {
        "annotator_labels": [label],
        "genre": "travel",
        "gold_label": label,
        "pairID": f"{prompt}{suffix}",
        "promptID": str(prompt),
        "sentence1": premise,
        "sentence2": f"hypothesis {prompt}{suffix}",
    }
    for prompt, premise, label, suffix in [
        (10, LAKE, "entailment", "e"),
        (10, LAKE, "neutral", "n"),
        (10, LAKE, "contradiction", "c"),
        (11, "Mount Sel has two peaks.", "-", "n"),
    ]
]
SNLI: Rows = [{k: v for k, v in row.items() if k not in ("genre", "promptID")} for row in MNLI]
CONJNLI: Rows = [
    {"Premise": "Orvel and Tarn are lakes.", "Hypothesis": "Orvel is a lake.", "Label": "entailment"},
    {"Premise": "Orvel and Tarn are lakes.", "Hypothesis": "Orvel or Sel is a lake.", "Label": "neutral"},
    {"Premise": 'Orvel is "deep" and cold.', "Hypothesis": "Orvel is not cold.", "Label": "contradiction"},
]
DNLI: Rows = [
    {
        "label": label,
        "sentence1": "i fish at lake orvel .",
        "sentence2": f"i like lakes {number} .",
        "triple1": ["i", "like", "fish"],
        "triple2": ["<none>", "<none>", "<none>"],
        "dtype": "matchingtriple_up",
        "id": f"dialogue_nli_test_{number}",
    }
    for number, label in enumerate(["positive", "negative", "neutral"])
]
DECODE: Rows = [
    {
        "conversation_id": "c1#truncated#2",
        "record_id": record,
        "turns": [
            {"turn_id": 0, "agent_id": 1, "text": "i live by the sea"},
            {"turn_id": 1, "agent_id": 0, "text": "i live by lake orvel"},
            {"turn_id": 2, "agent_id": 1, "text": "nice"},
            {"turn_id": 3, "agent_id": 0, "text": last},
        ],
        "is_contradiction": contradiction,
        "aggregated_contradiction_indices": [1, 3] if contradiction else [],
    }
    for record, last, contradiction in [("r1", "i never saw a lake", True), ("r2", "it is deep", False)]
]
PASSAGES = f"passage 1:{LAKE}\n\npassage 2:Trout live in it.\n\n"
RAGTRUTH_SOURCES: Rows = [
    {
        "source_id": "70",
        "task_type": "QA",
        "source": "MARCO",
        "source_info": {"question": "how deep is lake orvel", "passages": PASSAGES},
        "prompt": "Briefly answer the following question: ...",
    },
    {"source_id": "71", "task_type": "Summary", "source": "CNN/DM", "source_info": f"{LAKE}\n", "prompt": "..."},
    {
        "source_id": "72",
        "task_type": "Data2txt",
        "source": "Yelp",
        "source_info": {
            "name": "Orvel Inn",
            "attributes": {"WiFi": "free", "Parking": {"garage": False, "lot": None}},
            "hours": None,
            "business_stars": 4.5,
            "review_info": [{"review_text": "Nice\nview."}, {"review_text": "Cold."}],
        },
        "prompt": "...",
    },
]


def marked(answer: str, text: str, label_type: str = "Evident Conflict", **flags: bool) -> dict[str, Any]:
    """RAGTruth's label on the one place of the answer that has this text."""
    start = answer.index(text)
    return {
        "start": start,
        "end": start + len(text),
        "text": text,
        "meta": "why",
        "label_type": label_type,
        "implicit_true": False,
        "due_to_null": False,
        **flags,
    }


def response(number: int, source: int, answer: str, *labels: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A row of RAGTruth's response.jsonl."""
    return {
        "id": str(number),
        "source_id": str(source),
        "model": f"model-{number % 2}",
        "temperature": 0.7,
        "labels": list(labels),
        "split": "test",
        "quality": "good",
        "response": answer,
        **values,
    }


SHALLOW = "Lake Orvel is the shallowest lake, and people swim in it."
CLOSED = "The Orvel Inn is closed on Sundays, has no lot, and is said to be haunted."
RAGTRUTH: Rows = [
    response(0, 70, "Lake Orvel is very deep."),
    response(
        1,
        70,
        SHALLOW,
        marked(SHALLOW, "people swim in it", "Subtle Baseless Info", implicit_true=True),
        marked(SHALLOW, "shallowest"),
    ),
    response(2, 71, "Orvel, deep and northern, is a lake."),
    response(
        3,
        72,
        CLOSED,
        marked(CLOSED, "closed on Sundays", "Evident Introduction of Baseless Information", due_to_null=True),
        marked(CLOSED, "no lot", "Evident Baseless Info", due_to_null=True),
        marked(CLOSED, "is said to be haunted", "Subtle Conflict"),
    ),
]
XSUM_TOKENS: Rows = [
    {
        "docid": docid,
        "system": system,
        "source": LAKE,
        "summary": " ".join(tokens),
        "tokens": tokens,
        "labels": labels,
        "reference": "A lake.",
    }
    for docid, system, tokens, labels in [
        ("7", "Gold", ["orvel\\'s", "lake", "is", "deep."], [0, 0, 0, 0]),
        ("7", "PtGen", ["orvel\\'s", "lake", "is", "not", "deep."], [1, 0, 0, 1, 1]),
        ("8", "Gold", ["a", "lake", "in", "france"], [0, 0, 1, 1]),
    ]
]
SPANS: Rows = [
    {
        "context": LAKE,
        "answer": "It is deep.",
        "spans": [],
        "question": "Is it?",
        "id": "one",
        "group": "g",
        "model": "m",
    },
    {
        "context": LAKE,
        "answer": "It is small and red.",
        "spans": [
            {"start": 16, "end": 19, "label": "subtle_baseless", "text": "red"},
            {"start": 6, "end": 11, "label": "Evident Conflict"},
            {"start": 6, "end": 19},
        ],
    },
]
SO_FAR = "[Human]: Do you know any lakes? [Assistant]: Lake Orvel. [Human]: What is it like?"
HALLUDIAL: Rows = [
    {
        "dialogue_id": dialogue,
        "knowledge": LAKE,
        "dialogue_history": SO_FAR,
        "turn": 1,
        "response": response,
        "target": target,
    }
    for dialogue, response, target in [
        (3, "It is the deepest up there.", "No."),
        (3, "It is deep and full of trout.", 'Yes. "full of trout" is not in the knowledge.'),
        (5, "It lies on a plateau.", "No, the response says what the knowledge says."),
    ]
]
HALUEVAL_QA: Rows = [
    {"knowledge": LAKE, "question": "Which lake is deep?", "right_answer": "Orvel", "hallucinated_answer": wrong}
    for wrong in ("The deepest lake of the plateau is Lake Tarn.", "Lake Sel is the deepest one.")
]
HALUEVAL_DIALOGUE: Rows = [
    {
        "knowledge": LAKE,
        "dialogue_history": SO_FAR,
        "right_response": "It is deep.",
        "hallucinated_response": "It is shallow, and warm all year.",
    }
]
HALUEVAL_SUMMARIZATION: Rows = [
    {"document": LAKE, "right_summary": "Orvel is deep.", "hallucinated_summary": "Orvel is the deepest lake there is."}
]
HALUEVAL_GENERAL: Rows = [
    {"ID": number, "user_query": query, "chatgpt_response": said, "hallucination": label, "hallucination_spans": spans}
    for number, query, said, label, spans in [
        ("1", "Name a lake.", "Lake Orvel.", "no", []),
        ("2", "Name two lakes.", "Lake Orvel and Mount Sel.", "yes", ["Mount Sel"]),
        ("", "Name three lakes.", "Lake Orvel, the sea and the sea.", "yes", ["the sea"]),
        ("2", "Name four lakes.", "Lake Orvel.", "yes", ["Incomplete answer", "Orvel"]),
        ("5", "Name five lakes.", "I would not know.", "yes", []),
    ]
]
TALK = "A1: Where is Lake Orvel?\nB1: On a plateau.\nA2: Is it deep?\nB2: It is\nshallow.\nA3: Thanks\nB3: Welcome."
DIAHALU: Rows = [
    {
        "ID": number,
        "text": TALK,
        "label": label,
        "index": index,
        "domain": domain,
        "explaination": why,
        "source": "Social Media",
        "Which LLM": "GPT4",
    }
    for number, label, index, domain, why in [
        (2, 1, '[[2,"non-factual"]]', "World Knowledge", '["it is deep"]'),
        (4, 0, "[]", "Task-oriented Style", "[]"),
        (7, 1, '[[1,"Incoherence"],[3,"Irrelevance"]]', "Chit-Chat", '["B1 is odd","so is B3"]'),
        (9, 1, '[[2,"Reasoning Error"]]', "Reasoning", '["it is "deep""]'),
    ]
]
# Name: the official file, its rows, and the fields of knowledge, response and label (None: not a flat field).
CASES: dict[str, tuple[str, Rows, tuple[str, str, str] | None]] = {
    "faithdial": ("test.json", FAITHDIAL, None),
    "faithcritic": ("test.json", FAITHDIAL, None),
    "wow": ("wow_test.json", WOW, None),
    "cmu_dog": ("cmu_dog_test_turns.jsonl", TURNS, None),
    "topical_chat": ("test_freq_turns.jsonl", TURNS, None),
    "begin": ("begin_test_wow.tsv", BEGIN[:3], ("knowledge", "response", "begin_label")),
    "audit": ("wow.csv", AUDIT_GOLD[:4], ("evidence", "response", "BEGIN")),
    "mnli": ("multinli_1.0_dev_matched.jsonl", MNLI[:3], ("sentence1", "sentence2", "gold_label")),
    "snli": ("snli_1.0_test.jsonl", SNLI[:3], ("sentence1", "sentence2", "gold_label")),
    "conjnli": ("conj_dev.tsv", CONJNLI, ("Premise", "Hypothesis", "Label")),
    "dnli": ("dialogue_nli_test.jsonl", DNLI, ("sentence1", "sentence2", "label")),
    "decode": ("test.jsonl", DECODE, None),
    "ragtruth": ("response.jsonl", RAGTRUTH, None),
    "xsum_tokens": ("xsum_token_labels.jsonl", XSUM_TOKENS, None),
    "spans": ("test.jsonl", SPANS, None),
    "halludial": ("spontaneous/spontaneous_test.json", HALLUDIAL, ("knowledge", "response", "target")),
    "halueval": ("qa_data.json", HALUEVAL_QA, None),
    "diahalu": ("DiaHalu.jsonl", DIAHALU, None),
}
BESIDE = {"ragtruth": ("source_info.jsonl", RAGTRUTH_SOURCES)}  # a second file that the first needs
FLAT = [name for name, case in CASES.items() if case[2]]


def encode(rows: Rows, suffix: str, *, as_list: bool = False) -> str:
    """Rows as a file of that suffix holds them."""
    if suffix == ".tsv":
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        return "".join("\t".join(cells) + "\r\n" for cells in lines)
    if suffix == ".csv":
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue()
    if suffix == ".json" or as_list:
        return json.dumps(rows, indent=1)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def write(path: Path, rows: Rows, *, as_list: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(rows, path.suffix, as_list=as_list).encode())
    return path


def write_case(folder: Path, name: str) -> Path:
    file, rows, _ = CASES[name]
    if name in BESIDE:
        write(folder / BESIDE[name][0], BESIDE[name][1])
    return write(folder / file, rows, as_list=name == "dnli")


def make(name: str, path: Path | str, **options: Any) -> Source:
    return SOURCES[name](path=str(path), **options)


def read(source: Source, split: str | None = None, **options: Any) -> tuple[list[Example], Counter[str]]:
    """Examples and counts."""
    report = ReadReport(**options)
    return list(read_examples(source, split, report)), report.counts


def labels(examples: list[Example]) -> Counter[str | None]:
    return Counter(example.label for example in examples)
