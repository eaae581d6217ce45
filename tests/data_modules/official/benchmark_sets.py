"""Benchmarks of detectors: LLM-AggreFact and TRUE."""

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
