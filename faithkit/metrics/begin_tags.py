"""BEGIN's classes and VRM's speech acts, as FaithDial and its audit tag responses (Dziri et al. 2022).

>>> begin_class(["Hallucination", "Entailment"]), begin_class(["Uncooperative"]), begin_class(["Evident Conflict"])
('partial hallucination', 'uncooperative', None)
>>> speech_acts(["Edifcation", "ack.", "edification disclosure"])
['edification', 'acknowledgment', 'disclosure']
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any

GENERIC, HALLUCINATION, PARTIAL = "generic", "hallucination", "partial hallucination"
ENTAILMENT, UNCOOPERATIVE = "entailment", "uncooperative"
CLASSES = (ENTAILMENT, UNCOOPERATIVE, GENERIC, PARTIAL, HALLUCINATION)
ACTS = (
    *("edification", "disclosure", "question", "acknowledgment", "confirmation", "advisement"),
    *("interpretation", "reflection"),
)
SHORT = {"ack": "acknowledgment", "advice": "advisement"}
_WORD = re.compile("[a-z]{3,}")


def begin_class(tags: Iterable[str]) -> str | None:
    """The class of a response with these tags; None where they are none of BEGIN's.

    Uncooperative is faithful but does not answer the dialogue; partial hallucination is both hallucinated and entailed.
    """
    known = {tag.strip().lower() for tag in tags} & set(CLASSES)
    if PARTIAL in known or known >= {HALLUCINATION, ENTAILMENT}:
        return PARTIAL
    return next((name for name in (HALLUCINATION, UNCOOPERATIVE, ENTAILMENT, GENERIC) if name in known), None)


def speech_acts(value: Any) -> list[str]:
    """The speech acts of a response, each once: of a list of them, or of one text.

    The audit's files misspell them in many ways, so a word is the act that it is nearest to; others are passed over.
    """
    given = [value] if isinstance(value, str) else value or []
    found = (_act(word) for text in given for word in _WORD.findall(str(text).lower()))
    return list(dict.fromkeys(act for act in found if act))


@cache
def _act(word: str) -> str | None:
    return SHORT.get(word) or next(iter(get_close_matches(word, ACTS, 1, 0.75)), None)
