"""Finds what a marked span is compared with: the sentence of the context, and the reason why the span is marked."""

import numpy as np

from critic.support.alignment import ALIGNED, Alignment, Floats, best_fit
from critic.support.arithmetic import first_number
from critic.support.normal_forms import (
    DATE,
    MODAL,
    NAME,
    NEGATION,
    NUMBER,
    QUANTIFIER,
    SENTENCE_END,
    UNIT,
    WORD,
    opposites,
)
from critic.support.values import Pair
from faithkit.records import Evidence
from faithkit.span_types import RELATIONS, SpanType, span_type

CONTRADICTION, ADDITION, _ = RELATIONS
LABEL_SET = "default"


def find_evidence(alignment: Alignment, start: int, end: int, logits: Floats) -> tuple[Evidence, SpanType]:
    """Finds the sentence of the context that a span is compared with, the reason why it is marked, and its type.

    Args:
        start: First character of the span in the response.
        end: After its last character.
        logits: How unsupported each word of the alignment is; the worst one decides where no value is wrong.
    """
    words = alignment.words
    inside = [n for n, place in enumerate(alignment.places) if words[place].start < end and start < words[place].end]
    places = [alignment.places[n] for n in inside]
    for pair in map(alignment.pair_of.get, places):
        if pair is not None and pair.is_unsupported:
            type_ = _type_of_value(pair)
            if pair.closest is None:
                first = alignment.matches[words[places[0]].sentence].first
                return _quote(alignment, "not in the context", first), type_
            says = "the context says" if pair.shares_head else "not in the context, which says"
            start, end = sentence_at(alignment.knowledge, pair.closest.start)
            reason = f"{says} {pair.closest.text}"
            return Evidence(text=alignment.knowledge[start:end], start=start, end=end, reason=reason), type_
    reason, first, type_ = _explain(alignment, places[int(np.argmax(logits[inside]))])
    return _quote(alignment, reason, first), type_


def _type_of_value(pair: Pair) -> SpanType:
    """Returns the type of a wrong value: the relation is unknown if the closest value may be of something else."""
    value, closest = pair.value, pair.closest
    is_same_number = closest is not None and first_number(closest.text) == first_number(value.text) is not None
    kind = UNIT if value.is_unit or (is_same_number and value.unit) else value.kind
    relation = ADDITION if closest is None else CONTRADICTION if pair.shares_head else None
    return {"relation": relation, "element": span_type(LABEL_SET, kind)["element"]}


def _quote(alignment: Alignment, reason: str, first: int) -> Evidence:
    """Makes evidence of the sentence of the context that a word is in."""
    words, knowledge = alignment.context.words, alignment.knowledge
    last, number = first, words[first].sentence
    while last + 1 < len(words) and words[last + 1].sentence == number:
        last += 1
    while first and words[first - 1].sentence == number:
        first -= 1
    # Which of the parts the words are in is not kept, but a sentence is in the knowledge as it is.
    for part in alignment.parts:
        found = knowledge.find(part[words[first].start : words[last].end]) if words[last].end <= len(part) else -1
        word = part[words[first].start : words[first].end].lower().replace("’", "'")
        if found >= 0 and words[first].lower in word:
            start, end = sentence_at(knowledge, found)
            return Evidence(text=knowledge[start:end], start=start, end=end, reason=reason)
    return Evidence(reason=reason)


def _explain(alignment: Alignment, place: int) -> tuple[str, int, SpanType]:
    """Says why a word may be unsupported: the reason, a word of the sentence that it refers to, and the type."""
    word, match = alignment.words[place], alignment.matches[alignment.words[place].sentence]
    context, here = alignment.context.words, alignment.response.negated[place]
    matched = range(match.first, match.end)
    counterpart = match.first + int(alignment.closeness[place, match.first : match.end].argmax())
    element = span_type(LABEL_SET, word.kind)["element"]
    conflict: SpanType = {"relation": CONTRADICTION, "element": element}
    negated: SpanType = {"relation": CONTRADICTION, "element": "negation"}
    is_aligned = float(alignment.closeness[place, counterpart]) > ALIGNED
    there = alignment.context.negated[counterpart]
    if word.kind == NEGATION or (is_aligned and here and not there):
        is_negated = bool(match.norms[NEGATION])
        reason = "negated otherwise in the context" if is_negated else "negated in the answer only"
        return reason, match.first, negated
    if is_aligned and there and not here:
        return "negated in the context", match.first, negated
    if word.kind in (WORD, NAME):
        opposite = opposites(word.norm)
        found = next((context[n].lower for n in matched if context[n].norm in opposite), None)
        if found:
            return f'the context says "{found}"', match.first, conflict
    if word.kind in (QUANTIFIER, MODAL) and match.norms[word.kind] and word.norm not in match.norms[word.kind]:
        found = next(context[n].lower for n in matched if context[n].kind == word.kind)
        return f'the context says "{found}"', match.first, conflict
    if not bool(alignment.equal[place].any()):
        return "not in the context", match.first, {"relation": ADDITION, "element": element}
    others = [other for other in match.content if other != place]
    is_value = word.kind in (NAME, NUMBER, DATE) and bool(others or alignment.asked)
    same, rivals = alignment.find_rivals(place, match) if is_value else ([], [])
    if rivals and same:
        fit = alignment.fit(place, others)
        best = max(rivals, key=lambda rival: float(fit[rival]))
        if float(fit[best]) > best_fit(fit, same):
            name = context[best]
            shown = name.lower.title() if name.kind in (NAME, DATE) else name.lower
            return f"in the context, but {shown} is closer to what the answer says", best, conflict
    return "does not fit the closest sentence of the context", match.first, {"relation": None, "element": element}


def sentence_at(text: str, position: int) -> tuple[int, int]:
    """Finds the sentence around a character: its first character and the one after its last."""
    start, end = 0, len(text)
    for found in SENTENCE_END.finditer(text):
        if found.end() > position:
            end = found.start()
            break
        start = found.end()
    while start < end and text[start].isspace():
        start += 1
    return start, end if end > start else start
