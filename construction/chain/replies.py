"""Finds replies that cannot be used, and reads induced hallucinations.

The rules in their order; the first that matches names the fault:

1. `empty`: it has no letter and no digit.
2. `refusal`: its first sentence declines ("I cannot answer ...", "I'm sorry, but I am unable to ...", "As an AI ...").
3. `repeats the prompt`: it has `ECHO_WORDS` words in a row from the instruction, or equals the last turn. Words of
   the knowledge do not count: a grounded reply may quote it.
4. `other language`: its language is clearly not English (`faithkit.languages`).
5. `over the limit`: it has too many words.
6. `cut off`: the model did not finish it within its tokens.

>>> rules = ReplyRules(max_words=8)
>>> [rules.fault(text) for text in ("...", "I'm sorry, I cannot answer that.", "Es ist ein Fluss und er ist lang.")]
['empty', 'refusal', 'other language']
>>> rules.fault("The Danube flows through ten countries.") is None
True
"""

import re
from dataclasses import dataclass, field

from data_modules.reading.fields import SPEAKER_MARKS
from faithkit.inference.prompts import FIELD
from faithkit.languages import ENGLISH, identify_language
from faithkit.words import unicode_words

EMPTY, REFUSAL, ECHO = "empty", "refusal", "repeats the prompt"
LANGUAGE, TOO_LONG, CUT = "other language", "over the limit", "cut off"
ECHO_WORDS = 8  # too many for a coincidence

_DECLINES = (
    r"(?:answer|provide|help|assist|comply|fulfil\w*|respond|generate|continue|discuss|create|write|give|determine|"
    r"complete|offer|do that|do this)"
)
_REFUSAL = re.compile(
    r"\bas an? (?:ai|artificial intelligence|language model|large language model)\b"
    rf"|\b(?:i|we) (?:can ?not|can't|could not|couldn't|will not|won't|must decline to) {_DECLINES}\b"
    rf"|\b(?:i|we)(?: am|'m| are|'re) (?:not able|unable|not allowed) to {_DECLINES}\b"
    r"|^\W*(?:unable to answer|no answer (?:is )?(?:possible|available)|not enough information)\b"
    r"|\b(?:do(?:es)? not|don't|doesn't) (?:contain|have|include|provide) (?:the |any |enough |sufficient )?"
    r"(?:necessary |relevant )?information\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"^.{0,300}?(?:[.!?\n]|$)", re.DOTALL)
# Begins a turn: a speaker's mark with a colon anywhere, or without one at the beginning of a line.
_MARK = re.compile(
    "|".join(rf"{re.escape(mark)}\s*:|^[ \t]*{re.escape(mark)}" for mark in SPEAKER_MARKS.values()),
    re.IGNORECASE | re.MULTILINE,
)


def cut_turns(text: str) -> tuple[str, bool]:
    """Cuts a reply before the first further turn that the model wrote.

    Returns:
        The reply without a speaker's mark at its beginning, and whether it was cut.
    """
    reply = text.strip()
    if (found := _MARK.match(reply)) is not None:
        reply = reply[found.end() :].strip()
    found = _MARK.search(reply)
    return (reply[: found.start()].strip(), True) if found else (reply, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """Rules for replies.

    Args:
        max_words: The most words of a reply; None for any number.
        language: ENGLISH, or None for any.
        instruction: The prompt's text, with its fields.
    """

    max_words: int | None = None
    language: str | None = ENGLISH
    instruction: str = ""
    _runs: frozenset[tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        runs = {run for part in FIELD.split(self.instruction)[::2] for run in _runs_of(unicode_words(part))}
        object.__setattr__(self, "_runs", frozenset(runs))

    def fault(self, text: str, *, finished: bool = True, last_turn: str = "", may_decline: bool = False) -> str | None:
        """Names the fault of a reply; None without one."""
        words = unicode_words(text)
        if not any(character.isalnum() for character in text):
            return EMPTY
        if is_refusal(text) and not may_decline:
            return REFUSAL
        if not self._runs.isdisjoint(_runs_of(words)) or (len(words) >= 4 and words == unicode_words(last_turn)):
            return ECHO
        if self.language == ENGLISH and identify_language(text):
            return LANGUAGE
        if self.max_words is not None and len(text.split()) > self.max_words:
            return TOO_LONG
        return None if finished else CUT


def is_refusal(text: str) -> bool:
    """Checks whether the first sentence declines to answer."""
    first = _FIRST.match(text.strip().replace("’", "'"))
    return bool(first and _REFUSAL.search(first[0]))


def _runs_of(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[place : place + ECHO_WORDS]) for place in range(len(words) - ECHO_WORDS + 1)}


INDUCED_KINDS = ("factual", "faithfulness")
MAX_MORE_WORDS = 6  # than the reference has (HalluDial, Tables 13 and 14)
TOO_MANY_WORDS, NO_EXPLANATION, SAME = "over six words more", "no explanation", "the reference itself"
_REPLY = re.compile(r"^[\s#*]*hallucinated (?:reply|response)[#*]*\s*:[\s*]*", re.IGNORECASE)
_EXPLANATION = re.compile(r"(?:^|\n)[\s#*]*(?:hallucination )?explanation[#*]*\s*:[\s*]*", re.IGNORECASE)
_NEXT = re.compile(r"\n[\s#*]*(?:example \d|knowledge\s*:|conversation\s*:|reference reply\s*:)", re.IGNORECASE)


def read_induced(text: str) -> tuple[str, str] | None:
    """Reads an induced hallucination and its explanation; None if one of them is missing.

    >>> read_induced("It was built in 1922.\\n\\nExplanation:\\nThe hallucinated part is \\"1922\\".")
    ('It was built in 1922.', 'The hallucinated part is "1922".')
    """
    text = _REPLY.sub("", text)
    if (found := _EXPLANATION.search(text)) is None:
        return None
    reply, explanation = text[: found.start()].strip(), text[found.end() :]
    if (end := _NEXT.search(explanation)) is not None:  # the model went on with another example
        explanation = explanation[: end.start()]
    return (reply, explanation.strip()) if reply and explanation.strip() else None


def find_induced_fault(reply: str, reference: str) -> str | None:
    """Names the fault of a hallucinated reply, compared with its reference; None without one."""
    if unicode_words(reply) == unicode_words(reference):
        return SAME
    return TOO_MANY_WORDS if len(reply.split()) > len(reference.split()) + MAX_MORE_WORDS else None
