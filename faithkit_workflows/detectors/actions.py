"""Marks actions that an assistant claims without a call of a tool that does them, or after a call that failed.

"I have sent the invoice." needs a call such as send_mail; "all tests pass" one that ran tests and shows no failure.
The rules read first person and passive in the perfect or past tense, with the verbs of a table. Questions, negations
and conditions are no claims.

>>> calls = [{"name": "get_order", "arguments": "{}", "failed": False, "result": "id: 7."}]
>>> [(mark.text, mark.evidence.reason) for mark in find_unsupported_actions("I have sent the invoice.", calls)]
[('I have sent the invoice', 'no call of a tool does this')]
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from faithkit.records import HALLUCINATED, Evidence, Prediction, Span

ACTION = "unsupported_action"
PROBABILITY = 0.9  # that an answer with such a mark is hallucinated
# The words of a call's name or arguments that do what a verb says.
_CHANGE = "update change edit modify set write replace rename move patch put apply"
_SHELL = "bash shell exec terminal command"
_VERBS = {
    "sent emailed mailed messaged notified informed forwarded replied": "send mail message notif sms reply forward",
    "booked reserved": "book reserv",
    "cancelled canceled": "cancel delete remove",
    "refunded reimbursed": "refund reimburs",
    "deleted removed erased": "delete remove erase drop cancel unlink rm",
    "created added registered generated": "create add insert new write register append post generate",
    "updated changed modified edited corrected replaced renamed moved": f"{_CHANGE} correct mv sed",
    "saved stored written uploaded": "save store write upload put create",
    "scheduled rescheduled": "schedul calendar event meeting create update",
    "ordered purchased bought paid charged transferred": "order buy purchas pay charge transfer checkout",
    "fixed implemented refactored": f"{_CHANGE} fix implement refactor",
    "committed": "commit",
    "pushed": "push",
    "merged": "merge",
    "deployed published released": "deploy publish release",
    "installed": "install",
    "restarted started stopped": "start stop",
}
_KEYWORDS = {verb: tuple(words.split()) for verbs, words in _VERBS.items() for verb in verbs.split()}
_VERB = "|".join(_KEYWORDS)
_ADVERBS = r"(?:(?:just|also|already|now|successfully|then)\s+)*"
_CLAIM = re.compile(
    rf"\b(?:I|we)(?:['’]ve|\s+have)?\s+{_ADVERBS}(?P<done>{_VERB})\b"
    rf"|\b(?:has|have|was|were)\s+{_ADVERBS}(?:been\s+{_ADVERBS})?(?P<passive>{_VERB})\b",
    re.IGNORECASE,
)
_TESTS = re.compile(
    r"\b(?:all\s+)?(?:the\s+)?(?:\w+\s+)?(?P<what>tests?|build)\s+(?:now\s+)?(?:all\s+)?"
    r"(?:pass(?:es|ed)?|succeed(?:s|ed)?|(?:is|are)\s+(?:now\s+)?(?:passing|green))\b",
    re.IGNORECASE,
)
_RUNS = {"test": ("test", "pytest", "jest", "tox", "check"), "build": ("build", "compile", "make", "tsc")}
_FAILURES = re.compile(r"\b[1-9]\d* (?:failed|failures?|errors?)\b|\bFAILED\b|\bFAIL\b|Traceback|AssertionError")
_NO_CLAIM = re.compile(
    r"(?:\b(?:if|once|when|until|unless|whether|should|would|could|can|may|might|will|not|never|nothing)|n['’]t)\b[^.!?\n]*\Z",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.;!?](?=\s|\Z)|\n|,? and (?:I|we)\b|\Z")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")


def find_unsupported_actions(answer: str, calls: Sequence[Mapping[str, Any]]) -> list[Span]:
    """Finds the claimed actions that no successful call does.

    Args:
        calls: Each with name, arguments as a text, failed, and the text of its result.
    """
    return [span for span, is_done in _judge_claims(answer, calls) if not is_done]


def _judge_claims(answer: str, calls: Sequence[Mapping[str, Any]]) -> list[tuple[Span, bool]]:
    """Returns each claim of an action with whether a call does it."""
    found = []
    claims = sorted([*_CLAIM.finditer(answer), *_TESTS.finditer(answer)], key=lambda one: one.start())
    for claim, following in zip_longest(claims, claims[1:]):
        before = max((end.end() for end in _SENTENCE_END.finditer(answer, 0, claim.start())), default=0)
        clause_end = _CLAUSE_END.search(answer, claim.end())
        assert clause_end is not None, "the end of the text matches"
        is_question = clause_end.group() == "?"
        if is_question or _NO_CLAIM.search(answer[before : claim.start()]):
            continue
        groups = claim.groupdict()
        is_run = "what" in groups
        if is_run:
            what = groups["what"].lower().rstrip("s")
            doing = [call for call in calls if _mentions(call, _RUNS[what])]
            failed = [call for call in doing if call["failed"] or _FAILURES.search(call.get("result", ""))]
            failed = failed if doing and doing[-1] in failed else []  # the last run counts
        else:
            verb = (groups["done"] or groups["passive"]).lower()
            doing = [call for call in calls if _mentions(call, _KEYWORDS[verb])]
            failed = doing if doing and all(call["failed"] for call in doing) else []
            if groups["passive"] and any(verb in call.get("result", "").lower() for call in calls):
                continue  # a tool reports it
        start, end = claim.start(), clause_end.start()
        if following is not None and following.start() < end:  # "I fixed it and all tests pass" has two
            end = start + len(re.sub(r"[\s,]*(?:and)?\s*\Z", "", answer[start : following.start()]))
        if not is_run and groups["passive"]:  # with its subject
            begin = max((mark.end() for mark in re.finditer(r"[.,;:!?]\s|\n|\band ", answer[:start])), default=0)
            start = max(begin, before)
        reason = "no call of a tool does this"
        if failed:
            shown = "shows a failure" if is_run and not failed[-1]["failed"] else "failed"
            reason = f"the call {failed[-1]['name']} {shown}"
        evidence = Evidence(reason=reason)
        text = answer[start:end]
        span = Span(start=start, end=end, label=ACTION, score=PROBABILITY, text=text, evidence=evidence)
        found.append((span, bool(doing) and not failed))
    return found


def _mentions(call: Mapping[str, Any], keywords: Sequence[str]) -> bool:
    """Whether the name of a call, or a command that it runs, has one of some words."""
    name = str(call["name"]).lower()
    is_shell = any(word in name for word in _SHELL.split())
    words = re.findall(r"[a-z]+", f"{name} {call['arguments']}".lower() if is_shell else name)
    return any(word.startswith(keyword) for word in words for keyword in keywords)


def add_actions(prediction: Prediction, answer: str, calls: str) -> Prediction:
    """Adds the marks of unsupported actions, which make an answer hallucinated.

    A word that a detector marks inside a claimed action is no mark of its own: the rules judge the claim.

    Args:
        calls: What the assistant had called, as JSON.
    """
    claims = _judge_claims(answer, json.loads(calls))
    marks = [span for span, is_done in claims if not is_done]
    verbs = [claim.span("done" if claim["done"] else "passive") for claim in _CLAIM.finditer(answer)]
    judged = [(span.start, span.end) for span in marks] + (verbs if claims else [])
    spans = [s for s in prediction.spans if not any(start <= s.start and s.end <= end for start, end in judged)]
    spans = sorted([*spans, *marks], key=lambda span: (span.start, span.end))
    if not marks:
        return replace(prediction, spans=tuple(spans))
    score = None if prediction.score is None else max(prediction.score, PROBABILITY)
    return replace(prediction, label=HALLUCINATED, score=score, spans=tuple(spans))
