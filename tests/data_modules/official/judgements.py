"""Rows of HalluDial, HaluEval and DiaHalu."""

from tests.data_modules.official import LAKE, Rows

SO_FAR = "[Human]: Do you know any lakes? [Assistant]: Lake Orvel. [Human]: What is it like?"
HALLUDIAL: Rows = [
    {"dialogue_id": dialogue, "knowledge": LAKE, "dialogue_history": SO_FAR, "turn": 1}
    | {"response": response, "target": target}
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
WARM = "It is shallow, and warm all year."
HALUEVAL_DIALOGUE: Rows = [
    {"knowledge": LAKE, "dialogue_history": SO_FAR, "right_response": "It is deep.", "hallucinated_response": WARM}
]
HALUEVAL_SUMMARIZATION: Rows = [
    {"document": LAKE, "right_summary": "Orvel is deep.", "hallucinated_summary": "Orvel is the deepest lake there is."}
]
HALUEVAL_GENERAL: Rows = [
    {"ID": number, "user_query": query, "chatgpt_response": response}
    | {"hallucination": label, "hallucination_spans": spans}
    for number, query, response, label, spans in [
        ("1", "Name a lake.", "Lake Orvel.", "no", []),
        ("2", "Name two lakes.", "Lake Orvel and Mount Sel.", "yes", ["Mount Sel"]),
        ("", "Name three lakes.", "Lake Orvel, the sea and the sea.", "yes", ["the sea"]),
        ("2", "Name four lakes.", "Lake Orvel.", "yes", ["Incomplete answer", "Orvel"]),
        ("5", "Name five lakes.", "I would not know.", "yes", []),
    ]
]
TALK = "A1: Where is Lake Orvel?\nB1: On a plateau.\nA2: Is it deep?\nB2: It is\nshallow.\nA3: Thanks\nB3: Welcome."
DIAHALU: Rows = [
    {"ID": number, "text": TALK, "label": label, "index": index, "domain": domain}
    | {"explaination": why, "source": "Social Media", "Which LLM": "GPT4"}
    for number, label, index, domain, why in [
        (2, 1, '[[2,"non-factual"]]', "World Knowledge", '["it is deep"]'),
        (4, 0, "[]", "Task-oriented Style", "[]"),
        (7, 1, '[[1,"Incoherence"],[3,"Irrelevance"]]', "Chit-Chat", '["B1 is odd","so is B3"]'),
        (9, 1, '[[2,"Reasoning Error"]]', "Reasoning", '["it is "deep""]'),
    ]
]
