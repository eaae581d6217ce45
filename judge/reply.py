"""Parses the reply of a judge: yes or no, quotations, JSON. A reply in another form is unparsed.

A verdict is the word Yes or No at the beginning of a reply (`read_verdict`), or of its last line (`read_last_line`), in
any case and with any marks around it. Longer words (None, Nobel, Yesterday) and phrases with another meaning (No doubt,
Yes and no) are no verdict.

>>> read_verdict("**Yes**, it says twelve."), read_verdict("Nobel won it."), read_verdict("No doubt it is wrong.")
('hallucinated', 'unparsed', 'unparsed')
>>> quoted_parts('Yes. The reply says "twelve countries", not ten.')
['twelve countries']
"""

import json
import re
from typing import Any

from data_modules.reading.fields import YES_NO
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED

YES, NO = CHOICES = ("Yes", "No")  # hallucinated, faithful
_THOUGHTS = re.compile(r"^\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
MARKS = "\\s\"'`*_#>()\\[\\]“”„‟‘’‚«»‹›「」『』"
# Continuations that change the meaning of yes or no.
_OTHERS = "(?!\\s+(?:and|or|but\\s+also|doubt|one|idea|longer|matter|way|wonder|more|less|problem)\\b)"
_VERDICT = re.compile(rf"^[{MARKS}]*(yes|no)(?![\w’'-]){_OTHERS}", re.IGNORECASE)
_LABELLED = re.compile(rf"^[{MARKS}]*(?:final\s+)?(?:answer|verdict|judge?ment)[{MARKS}]*[:=]", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
# Opening quotation marks with their closing marks: English, German, French, Polish, Swedish, Chinese and Japanese.
_CLOSING = {
    '"': '"', "“": "”“", "”": "”", "„": "“”", "‟": "”", "«": "»", "»": "«»", "‹": "›", "›": "‹", "「": "」", "『": "』",
    "‘": "’", "‚": "‘’", "`": "`",
}  # fmt: skip
LIST_KEY = "hallucinations"  # as in the built-in prompt
LIST_KEYS = (LIST_KEY, "hallucination list", "hallucination_list", "spans")
VERDICT_KEYS = ("hallucinated", "hallucination", "verdict", "answer", "judgement", "judgment")


def without_thoughts(text: str) -> str:
    """Removes the reasoning before the reply of a reasoning model."""
    return _THOUGHTS.sub("", text).strip()


def read_verdict(text: str) -> str:
    """Parses hallucinated or faithful at the beginning of a reply, or in a JSON object; else unparsed."""
    reply = without_thoughts(text)
    if found := _VERDICT.match(reply):
        return YES_NO[found[1].lower()]
    values = _read_json(reply)
    if isinstance(values, dict):
        for key in VERDICT_KEYS:
            value = values.get(key)
            if isinstance(value, bool):
                return HALLUCINATED if value else FAITHFUL
            if isinstance(value, str) and value.strip().lower() in YES_NO:
                return YES_NO[value.strip().lower()]
    return UNPARSED


def read_last_line(text: str) -> str:
    """Parses the verdict in the last line of a reply, with or without `Answer:`."""
    lines = [line for line in without_thoughts(text).splitlines() if line.strip(" \t*_`")]
    if not lines:
        return UNPARSED
    found = _VERDICT.match(_LABELLED.sub("", lines[-1]))
    return YES_NO[found[1].lower()] if found else UNPARSED


def read_list(text: str) -> list[str] | None:
    """Parses the parts in a JSON list, or in an object with a list; returns None for another reply."""
    values = _read_json(without_thoughts(text))
    if isinstance(values, dict):
        lists = [values[key] for key in LIST_KEYS if key in values]
        values = lists[0] if lists else None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    return [value for value in values if value.strip()]


def quoted_parts(text: str) -> list[str]:
    """Returns the quotations in a text, in order, with the quotation marks of several languages, without nesting."""
    reply, found, place = without_thoughts(text), [], 0
    while place < len(reply):
        closing = _CLOSING.get(reply[place])
        if closing is None or (reply[place] in "'‘‚" and place and reply[place - 1].isalnum()):
            place += 1
            continue
        ends = [end for mark in closing if (end := reply.find(mark, place + 1)) >= 0]
        if not ends:
            place += 1
            continue
        part = reply[place + 1 : min(ends)]
        if part.strip():
            found.append(part.strip())
        place = min(ends) + 1
    return found


def _read_json(text: str) -> Any:
    """Parses a reply that is JSON, with or without a code fence; returns None for another reply."""
    fenced = _FENCE.search(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
