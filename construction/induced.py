"""Reads what a model made when it was told to hallucinate: a reply, and the explanation of what is wrong with it.

>>> read_induced("It was built in 1922.\\n\\nExplanation:\\nThe hallucinated part is \\"1922\\".")
('It was built in 1922.', 'The hallucinated part is "1922".')
>>> read_induced("It was built in 1922.") is None
True
"""

import re

from faithkit.words import unicode_words

FACTUAL, FAITHFULNESS = KINDS = ("factual", "faithfulness")
MORE_WORDS = 6  # than the reference a hallucinated reply may have, at most (HalluDial, Tables 13 and 14)
TOO_MANY_WORDS, NO_EXPLANATION, SAME = "over six words more", "no explanation", "the reference itself"
_REPLY = re.compile(r"^[\s#*]*hallucinated (?:reply|response)[#*]*\s*:[\s*]*", re.IGNORECASE)
_EXPLANATION = re.compile(r"(?:^|\n)[\s#*]*(?:hallucination )?explanation[#*]*\s*:[\s*]*", re.IGNORECASE)
_NEXT = re.compile(r"\n[\s#*]*(?:example \d|knowledge\s*:|conversation\s*:|reference reply\s*:)", re.IGNORECASE)


def read_induced(text: str) -> tuple[str, str] | None:
    """Reads the reply and the explanation; None where one of them is missing. What is written behind is left out."""
    said, found, rest = _REPLY.sub("", text), None, ""
    if (found := _EXPLANATION.search(said)) is not None:
        rest = said[found.end() :]
        said = said[: found.start()]
    if (end := _NEXT.search(rest)) is not None:
        rest = rest[: end.start()]
    reply, explanation = said.strip(), rest.strip()
    return (reply, explanation) if reply and explanation else None


def induced_fault(reply: str, reference: str) -> str | None:
    """Names what is wrong with a hallucinated reply beside its reference; None where nothing is."""
    if unicode_words(reply) == unicode_words(reference):
        return SAME
    return TOO_MANY_WORDS if len(reply.split()) > len(reference.split()) + MORE_WORDS else None
