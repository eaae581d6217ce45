"""Inference as faithfulness: MNLI, SNLI, ConjNLI, dialogue NLI and DECODE."""

from tests.data_modules.official import LAKE, Rows

PAIRS = [(10, LAKE, "entailment", "e"), (10, LAKE, "neutral", "n"), (10, LAKE, "contradiction", "c")]
MNLI: Rows = [
    {"annotator_labels": [label], "genre": "travel", "gold_label": label, "pairID": f"{prompt}{suffix}"}
    | {"promptID": str(prompt), "sentence1": premise, "sentence2": f"hypothesis {prompt}{suffix}"}
    for prompt, premise, label, suffix in [*PAIRS, (11, "Mount Sel has two peaks.", "-", "n")]
]
SNLI: Rows = [{k: v for k, v in row.items() if k not in ("genre", "promptID")} for row in MNLI]
CONJNLI: Rows = [
    {"Premise": "Orvel and Tarn are lakes.", "Hypothesis": "Orvel is a lake.", "Label": "entailment"},
    {"Premise": "Orvel and Tarn are lakes.", "Hypothesis": "Orvel or Sel is a lake.", "Label": "neutral"},
    {"Premise": 'Orvel is "deep" and cold.', "Hypothesis": "Orvel is not cold.", "Label": "contradiction"},
]
NO_TRIPLE = ["<none>", "<none>", "<none>"]
DNLI: Rows = [
    {"label": label, "sentence1": "i fish at lake orvel .", "sentence2": f"i like lakes {number} ."}
    | {"triple1": ["i", "like", "fish"], "triple2": NO_TRIPLE}
    | {"dtype": "matchingtriple_up", "id": f"dialogue_nli_test_{number}"}
    for number, label in enumerate(["positive", "negative", "neutral"])
]
SAID = ["i live by the sea", "i live by lake orvel", "nice"]
DECODE: Rows = [
    {"conversation_id": "c1#truncated#2", "record_id": record, "is_contradiction": contradiction}
    | {"turns": [{"turn_id": n, "agent_id": 1 - n % 2, "text": text} for n, text in enumerate([*SAID, last])]}
    | {"aggregated_contradiction_indices": [1, 3] if contradiction else []}
    for record, last, contradiction in [("r1", "i never saw a lake", True), ("r2", "it is deep", False)]
]
