"""Dialogues with knowledge: FaithDial, Wizard of Wikipedia in both layouts, and turns of CMU-DoG and Topical-Chat."""

from typing import Any

from tests.data_modules.official import LAKE, Rows


def utterance(
    history: list[str], response: str, original: str | None, tags: list[str] | None, knowledge: str = LAKE
) -> dict[str, Any]:
    judged = {"original_response": original, "BEGIN": tags, "VRM": ["Edification"] if tags else None}
    return {"history": history, "knowledge": knowledge, "response": response, **judged}


HISTORY = ["Do you know any lakes?"]
FAITHDIAL: Rows = [
    {
        "dialog_idx": 4,
        "utterances": [
            utterance(HISTORY, "Lake Orvel is very deep.", "I swam in Lake Orvel once.", ["Hallucination"]),
            utterance([*HISTORY, "It is.", "How deep?"], "The deepest up there.", "Deepest, I think!", ["Entailment"]),
            utterance(HISTORY, "It is the deepest lake.", None, ["Entailment", "Uncooperative"]),
            utterance(HISTORY, "My uncle fishes there.", None, ["Hallucination"]),
        ],
    },
    {
        "dialog_idx": 7,
        "utterances": [
            utterance(HISTORY, "It is deep.", "It is deep, and cold.", ["Hallucination", "Entailment"]),
            utterance(HISTORY, "A deep lake!", "Oh, nice!", ["Generic"]),
            utterance(HISTORY, "Sure thing.", "Sure thing. ", ["Generic"]),
            utterance(HISTORY, "Orvel is on a plateau.", "On a plateau.", ["Uncooperative"]),
        ],
    },
]
CASES = {  # of FAITHDIAL's turns, as both datasets that read them count them
    **{"case: edited, hallucinated": 2, "case: edited, entailed": 1, "case: unedited, entailed": 1},
    **{"case: unedited, hallucinated": 1, "case: edited, generic alone": 1, "case: unedited, generic alone": 1},
    "case: edited, uncooperative alone": 1,
}
WOW: Rows = [
    {"dialog_idx": 0, "utterances": [utterance(HISTORY, "Lake Orvel, of course.", None, None)]},
    {"dialog_idx": 1, "utterances": [utterance(["Hi", *HISTORY], "Orvel is deep.", None, None)]},
]
WIZARD, APPRENTICE = {"speaker": "0_Wizard"}, {"speaker": "1_Apprentice"}
WOW_PARLAI: Rows = [
    {"chosen_topic": "Lake Orvel", "persona": "i like water", "wizard_eval": 4, "chosen_topic_passage": [LAKE]}
    | {
        "dialog": [
            {**WIZARD, "text": "Lakes are fine.", "checked_sentence": {"no_passages_used": "no_passages_used"}},
            {**APPRENTICE, "text": "Which one is deep?", "retrieved_passages": []},
            {**WIZARD, "text": "Orvel is.", "checked_sentence": {"self_Lake_Orvel_0": LAKE}},
            {**APPRENTICE, "text": "Thanks"},
            {**WIZARD, "text": "Welcome.", "checked_sentence": {}},
        ]
    }
]
TURNS: Rows = [
    {"conv": "c1", "history": HISTORY, "knowledge": LAKE, "response": "Lake Orvel is very deep.", "rating": 2},
    {"conv": "c1", "history": ["Hi", *HISTORY], "knowledge": LAKE, "response": "It is the deepest.", "rating": 2},
]
