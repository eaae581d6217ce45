"""Marks actions that an assistant claims without a call of a tool that does them, or after a call that failed.

"I have sent the invoice." needs a call such as send_mail; "all tests pass" one that ran tests and shows no failure.
The rules read first person and passive in the perfect or past tense, with the verbs of a table. Questions, negations
and conditions are no claims.

>>> calls = '[{"name": "get_order", "arguments": "{}", "failed": false, "result": "id: 7."}]'
>>> found = add_actions(Prediction(id="1", label="faithful"), "I have sent the invoice.", calls)
>>> [(mark.text, mark.evidence.reason) for mark in found.spans]
[('I have sent the invoice', 'no call of a tool does this')]
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, zip_longest
from operator import itemgetter
from typing import Any

from faithkit.records import HALLUCINATED, Evidence, Prediction, Span, parse_calls, span_type

ACTION = "unsupported_action"
PROBABILITY = 0.9  # that an answer with such a mark is hallucinated
# The words of a call's name or arguments that do what a verb says.
_CHANGE = "update change edit modify set write replace rename move patch put apply"
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
    r"(?:\b(?:if|once|when|until|unless|whether|should|would|could|can|may|might|will|not|never|nothing)|n['’]t)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.;!?](?=\s|\Z)|\n|,? and (?:I|we)\b|\Z")


def _judge_claims(answer: str, calls: Sequence[Mapping[str, Any]]) -> list[tuple[Span, bool]]:
    """Returns each claim of an action with whether a call does it; the work is linear in the answer."""
    found = []
    claims = sorted([*_CLAIM.finditer(answer), *_TESTS.finditer(answer)], key=lambda one: one.start())
    if not claims:
        return []
    sentences, stops, subjects = (
        [0, *(mark.end() for mark in re.finditer(pattern, answer))]
        for pattern in (r"[.!?]\s|\n", r"[.!?\n]", r"[.,;:!?]\s|\n|\band ")
    )
    clauses, negations = list(_CLAUSE_END.finditer(answer)), [one.span() for one in _NO_CLAIM.finditer(answer)]
    commands = []  # the words of each call's name, of a shell with those of its command
    for call in calls:
        name = str(call["name"]).lower()
        is_shell = any(word in name for word in ("bash", "shell", "exec", "terminal", "command"))
        text = f"{name} {call['arguments']}".lower() if is_shell else name
        commands.append(set(re.findall(r"[a-z]+", text)))

    @cache
    def calls_for(keywords: tuple[str, ...]) -> list[Mapping[str, Any]]:
        return [
            call
            for call, words in zip(calls, commands, strict=True)
            if any(word.startswith(keywords) for word in words)
        ]

    @cache
    def is_reported(verb: str) -> bool:
        return any(verb in call.get("result", "").lower() for call in calls)

    for claim, following in zip_longest(claims, claims[1:]):
        start = claim.start()
        before = sentences[bisect_right(sentences, start) - 1]
        clause_end = clauses[bisect_left(clauses, claim.end(), key=lambda one: one.start())]
        last = bisect_right(negations, start, key=lambda one: one[1]) - 1
        is_denied = last >= 0 and negations[last][0] >= max(before, stops[bisect_right(stops, start) - 1])
        if clause_end.group() == "?" or is_denied:
            continue
        groups = claim.groupdict()
        is_run = "what" in groups
        if is_run:
            doing = calls_for(_RUNS[groups["what"].lower().rstrip("s")])
            last_run = doing[-1:]
            failed = [call for call in last_run if call["failed"] or _FAILURES.search(call.get("result", ""))]
        else:
            verb = (groups["done"] or groups["passive"]).lower()
            doing = calls_for(_KEYWORDS[verb])
            failed = doing if all(call["failed"] for call in doing) else []
            if groups["passive"] and is_reported(verb):
                continue
        end = clause_end.start()
        if following is not None and following.start() < end:  # "I fixed it and all tests pass" has two
            end = start + len(answer[start : following.start()].rstrip().removesuffix("and"))
            while answer[end - 1].isspace() or answer[end - 1] == ",":
                end -= 1
        if not is_run and groups["passive"]:  # with its subject
            start = max(subjects[bisect_right(subjects, start) - 1], before)
        reason = "no call of a tool does this"
        if failed:
            shown = "shows a failure" if is_run and not failed[-1]["failed"] else "failed"
            reason = f"the call {failed[-1]['name']} {shown}"
        evidence = Evidence(reason=reason)
        text = answer[start:end]
        known: Any = {"label": ACTION, **span_type("actions", ACTION)}
        span = Span(start=start, end=end, score=PROBABILITY, text=text, evidence=evidence, **known)
        found.append((span, bool(doing) and not failed))
    return found


def add_actions(prediction: Prediction, answer: str, calls: str) -> Prediction:
    """Adds the marks of unsupported actions, which make an answer hallucinated.

    A word that a detector marks inside a claimed action is no mark of its own: the rules judge the claim.

    Args:
        calls: What the assistant had called, as JSON; with any other text nothing is added.
    """
    called = parse_calls(calls)
    if called is None:
        return prediction
    claims = _judge_claims(answer, called)
    marks = [span for span, is_done in claims if not is_done]
    verbs = [claim.span("done" if claim["done"] else "passive") for claim in _CLAIM.finditer(answer)]
    judged = [(span.start, span.end) for span in marks] + (verbs if claims else [])
    judged.sort()
    ends = [-1, *accumulate((end for _, end in judged), max)]  # the furthest end of what begins no later
    spans = [s for s in prediction.spans if s.end > ends[bisect_right(judged, s.start, key=itemgetter(0))]]
    spans = sorted([*spans, *marks], key=lambda span: (span.start, span.end))
    if not marks:
        return replace(prediction, spans=tuple(spans))
    score = None if prediction.score is None else max(prediction.score, PROBABILITY)
    return replace(prediction, label=HALLUCINATED, score=score, spans=tuple(spans))
