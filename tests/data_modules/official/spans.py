"""Answers with marked spans or tokens: RAGTruth, XSum's token labels, and a user's table."""

from typing import Any

from tests.data_modules.official import LAKE, Rows

PASSAGES = f"passage 1:{LAKE}\n\npassage 2:Trout live in it.\n\n"
QUESTION = {"question": "how deep is lake orvel", "passages": PASSAGES}
ATTRIBUTES = {"WiFi": "free", "Parking": {"garage": False, "lot": None}}
INN = {"name": "Orvel Inn", "attributes": ATTRIBUTES, "hours": None, "business_stars": 4.5}
INN |= {"review_info": [{"review_text": "Nice\nview."}, {"review_text": "Cold."}]}
RAGTRUTH_SOURCES: Rows = [
    {"source_id": "70", "task_type": "QA", "source": "MARCO", "source_info": QUESTION, "prompt": "Briefly answer: ..."},
    {"source_id": "71", "task_type": "Summary", "source": "CNN/DM", "source_info": f"{LAKE}\n", "prompt": "..."},
    {"source_id": "72", "task_type": "Data2txt", "source": "Yelp", "source_info": INN, "prompt": "..."},
]


def marked(answer: str, text: str, label_type: str = "Evident Conflict", **flags: bool) -> dict[str, Any]:
    """RAGTruth's label on the one place of the answer that has this text."""
    start = answer.index(text)
    place = {"start": start, "end": start + len(text), "text": text, "meta": "why", "label_type": label_type}
    return {**place, "implicit_true": False, "due_to_null": False, **flags}


def response(number: int, source: int, answer: str, *labels: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A row of RAGTruth's response.jsonl."""
    made = {"id": str(number), "source_id": str(source), "model": f"model-{number % 2}", "temperature": 0.7}
    return {**made, "labels": [*labels], "split": "test", "quality": "good", "response": answer, **values}


SHALLOW = "Lake Orvel is the shallowest lake, and people swim in it."
CLOSED = "The Orvel Inn is closed on Sundays, has no lot, and is said to be haunted."
SWIMMING = marked(SHALLOW, "people swim in it", "Subtle Baseless Info", implicit_true=True)
INVENTED = [
    marked(CLOSED, "closed on Sundays", "Evident Introduction of Baseless Information", due_to_null=True),
    marked(CLOSED, "no lot", "Evident Baseless Info", due_to_null=True),
    marked(CLOSED, "is said to be haunted", "Subtle Conflict"),
]
RAGTRUTH: Rows = [
    response(0, 70, "Lake Orvel is very deep."),
    response(1, 70, SHALLOW, SWIMMING, marked(SHALLOW, "shallowest")),
    response(2, 71, "Orvel, deep and northern, is a lake."),
    response(3, 72, CLOSED, *INVENTED),
]
XSUM_TOKENS: Rows = [
    {"docid": docid, "system": system, "source": LAKE, "summary": " ".join(tokens)}
    | {"tokens": tokens, "labels": labels, "reference": "A lake."}
    for docid, system, tokens, labels in [
        ("7", "Gold", ["orvel\\'s", "lake", "is", "deep."], [0, 0, 0, 0]),
        ("7", "PtGen", ["orvel\\'s", "lake", "is", "not", "deep."], [1, 0, 0, 1, 1]),
        ("8", "Gold", ["a", "lake", "in", "france"], [0, 0, 1, 1]),
    ]
]
PAIRS: Rows = [
    {"knowledge": LAKE, "response": "It is deep.", "label": "faithful", "model": "m"},
    {"knowledge": LAKE, "response": 'It is small, red\nand "old".', "label": "hallucinated", "model": "n"},
    {"knowledge": "A hill, high.", "response": "It is high.", "label": "Supported", "model": "m"},
]
