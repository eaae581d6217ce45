"""Responses with a label each: BEGIN of 2022 and 2021, and FaithDial's audit."""

from tests.data_modules.official import LAKE, Rows

PLATEAU, PEAKS = "lake orvel is the deepest lake of the northern plateau .", "Mount Sel has two peaks."
BEGIN: Rows = [
    {"model_name": model, "data_source": "wow", "knowledge": knowledge, "message": message}
    | {"response": response, "begin_label": label}
    for model, knowledge, message, response, label in [
        ("gpt2", LAKE, 'what is "deep"?', "lake orvel is", "Fully attributable"),
        ("t5", PLATEAU, "and?", "i love it", "Not fully attributable"),
        ("ctrl", PEAKS, "", "it has two peaks", "Fully attributable"),
        ("doha", PEAKS, "really?", "yes", "Generic"),
    ]
]
LABEL_SET = "not-generic;on-topic;cooperative;faithful"
BEGIN_2021: Rows = [
    {"evidence": LAKE, "previous turn": "tell me", "response": f"reply {number}", "gold label": label}
    | {"coarse label": "neutral", "full label set": LABEL_SET}
    for number, label in enumerate(["entailment", "hallucination", "off-topic", "contradiction", "generic"])
]
AUDIT_GOLD: Rows = [
    {"evidence": LAKE, "history": "a lake?", "response": f"reply {n}", "BEGIN": label, "VRM": "disclosure,\nquestion"}
    for n, label in enumerate(["Entailment", "Hallucination", "Partial Hallucination", "Uncooperative", "Generic"])
]
AUDIT_DOHA: Rows = [
    {"knowledge": LAKE, "history": message, "doha": response, "begin_label": label, "vrm_label": "edification,ack."}
    for message, response, label in [
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
