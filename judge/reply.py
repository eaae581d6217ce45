"""Reads what a judge replied: yes or no, quoted parts, JSON. What does not have the form is unparsed, never guessed.

A verdict is the word Yes or No at the beginning of a reply (`read_verdict`), or of its last line (`read_last_line`),
whatever its case and the marks around it. Words that only begin so (None, Nobel, Yesterday) are none, nor are phrases
in which the word does not answer (No doubt, Yes and no).

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
# Phrases that begin so and answer something else, or nothing.
_OTHERS = "(?!\\s+(?:and|or|but\\s+also|doubt|one|idea|longer|matter|way|wonder|more|less|problem)\\b)"
_VERDICT = re.compile(rf"^[{MARKS}]*(yes|no)(?![\w’'-]){_OTHERS}", re.IGNORECASE)
_LABELLED = re.compile(rf"^[{MARKS}]*(?:final\s+)?(?:answer|verdict|judge?ment)[{MARKS}]*[:=]", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
# Opening marks, each with those that close it: English, German, French, Polish, Swedish, Chinese and Japanese ways.
_CLOSING = {
    '"': '"', "“": "”“", "”": "”", "„": "“”", "‟": "”", "«": "»", "»": "«»", "‹": "›", "›": "‹", "「": "」", "『": "』",
    "‘": "’", "‚": "‘’", "`": "`",
}  # fmt: skip
LIST_KEY = "hallucinations"  # as our own prompt asks for it
LIST_KEYS = (LIST_KEY, "hallucination list", "hallucination_list", "spans")
VERDICT_KEYS = ("hallucinated", "hallucination", "verdict", "answer", "judgement", "judgment")


def without_thoughts(text: str) -> str:
    """Leaves out what a reasoning model thought aloud before it replied."""
    return _THOUGHTS.sub("", text).strip()


def read_verdict(text: str) -> str:
    """Reads hallucinated or faithful from the beginning of a reply, or from a JSON object; else unparsed."""
    said = without_thoughts(text)
    if found := _VERDICT.match(said):
        return YES_NO[found[1].lower()]
    values = _read_json(said)
    if isinstance(values, dict):
        for key in VERDICT_KEYS:
            value = values.get(key)
            if isinstance(value, bool):
                return HALLUCINATED if value else FAITHFUL
            if isinstance(value, str) and value.strip().lower() in YES_NO:
                return YES_NO[value.strip().lower()]
    return UNPARSED


def read_last_line(text: str) -> str:
    """Reads the verdict of a reply that reasons first: its last line, with `Answer:` before it or without."""
    lines = [line for line in without_thoughts(text).splitlines() if line.strip(" \t*_`")]
    if not lines:
        return UNPARSED
    found = _VERDICT.match(_LABELLED.sub("", lines[-1]))
    return YES_NO[found[1].lower()] if found else UNPARSED


def read_list(text: str) -> list[str] | None:
    """Reads the parts that a JSON list, or an object with one, names; None where the reply is no such thing."""
    values = _read_json(without_thoughts(text))
    if isinstance(values, dict):
        lists = [values[key] for key in LIST_KEYS if key in values]
        values = lists[0] if lists else None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    return [value for value in values if value.strip()]


def quoted_parts(text: str) -> list[str]:
    """Gives what stands in quotation marks, in its order; the marks of several languages, none within another."""
    said, found, place = without_thoughts(text), [], 0
    while place < len(said):
        closing = _CLOSING.get(said[place])
        if closing is None or (said[place] in "'‘‚" and place and said[place - 1].isalnum()):
            place += 1
            continue
        ends = [end for mark in closing if (end := said.find(mark, place + 1)) >= 0]
        if not ends:
            place += 1
            continue
        part = said[place + 1 : min(ends)]
        if part.strip():
            found.append(part.strip())
        place = min(ends) + 1
    return found


def _read_json(text: str) -> Any:
    """Reads a reply that is JSON, in a fence or without; None for any other."""
    fenced = _FENCE.search(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
