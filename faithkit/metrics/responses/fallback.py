"""Fallback rate: the share of responses that say "I don't know" or "I cannot say", before or instead of an answer.

Read it together with faithfulness: a system that always falls back is never wrong, and useless. A pattern matches the
phrases, English only; it misses a polite evasion without one of them.

FaithDial (Dziri et al. 2022, section 4.2.3) has them where a question is unanswerable: personal, about opinions, or
beyond the knowledge. The dataset does not mark these turns. Here a turn counts as unanswerable where its gold response
is itself a fallback: then the people who edited it saw no answer in the knowledge.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faithkit.statistics.spread import Values

_VERY = r"(?:(?:really|actually|personally|honestly|exactly|quite|too|very|entirely|even|totally|also) )?"
_CANNOT = r"(?:can not|cannot|can't|cant|could not|couldn't|am unable to|am not able to)"
_FACTS = r"(?:information|info|knowledge|details?|data|answers?|idea|clue|opinions?|preferences?|feelings?)"
_QUALIFIER = r"(?:(?:any|much|that|the|enough|more|an?|personal|specific|further|exact|kind of|sort of) )*"
_FALLBACK = re.compile(
    rf"\b(?:i|we) {_VERY}(?:do not|don't|dont) {_VERY}(?:know|recall|remember|have {_QUALIFIER}{_FACTS})\b"
    rf"|\b(?:i|we) {_VERY}{_CANNOT} {_VERY}(?:say|tell|comment|answer|confirm|find|give|recall|remember|help)\b"
    rf"|\b(?:i am|i'm|im) {_VERY}(?:not {_VERY}|un)(?:sure|certain|aware|familiar|informed)\b(?! (?:if|whether) you)"
    rf"|\b(?:i|we) have no {_QUALIFIER}{_FACTS}\b"
    r"|\bi(?: have not| haven't|'ve never| have never) heard of\b"
    r"|\b(?:i am|i'm|im|as|being) (?:just |only |merely )?an? (?:ai|bot|robot|chat ?bot|machine|language model)\b"
    # Without its subject, at the start of a sentence.
    rf"|(?:^|[.!?,;] )(?:{_VERY}not {_VERY}(?:sure|certain)|unsure|don't {_VERY}know|no (?:idea|clue))\b"
)


def is_fallback(text: str) -> bool:
    """Checks whether the speaker does not know, cannot say, or has no such experience as a machine."""
    return _FALLBACK.search(" ".join(text.lower().replace("’", "'").split())) is not None


def fallback_rates(responses: Sequence[str], references: Sequence[str | None]) -> dict[str, Values]:
    """Computes `fallback` of all turns, and of the unanswerable and the answerable ones alone; NaN for the others [N].

    The better system falls back on the unanswerable turns and nowhere else.
    """
    falls_back = np.array([is_fallback(text) for text in responses], np.float64)
    unanswerable: NDArray[np.bool_] = np.array([text is not None and is_fallback(text) for text in references], bool)
    judged = np.array([text is not None for text in references], bool)
    return {
        "fallback": falls_back,
        "fallback_unanswerable": np.where(unanswerable, falls_back, np.nan),
        "fallback_answerable": np.where(judged & ~unanswerable, falls_back, np.nan),
    }
