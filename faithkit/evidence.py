"""Finds for each mark the sentence of the context that it contradicts or that is closest to it.

A detector that compares with the context gives this evidence itself. For all others it is the sentence that shares most
content words with the span's sentence. Offsets count characters within a passage.

>>> from faithkit.records import Prediction, Span
>>> found = Prediction(id="0", label="hallucinated", spans=(Span(start=9, end=18, label="hallucination"),))
>>> add_evidence(found, ["It is red. It lasts 24 months."], "It lasts 36 months.").spans[0].evidence.text
'It lasts 24 months.'
"""

from collections.abc import Sequence
from dataclasses import replace

from faithkit.records import PASSAGE_BREAK, Evidence, Prediction, Span
from faithkit.words import sentence_places, unicode_content_words

CLOSEST, NOTHING = "the closest sentence of the context", "nothing in the context is close"


def add_evidence(prediction: Prediction, passages: Sequence[str], response: str) -> Prediction:
    """Completes the spans of a result: their text, and the evidence of those without.

    Args:
        passages: The context's. A detector's own evidence counts in these passages joined by empty lines.
    """
    if not prediction.spans:
        return prediction
    without = [span.start for span in prediction.spans if span.evidence is None]
    closest = iter(find_closest(passages, response, without))
    spans = [
        replace(
            span,
            text=response[span.start : span.end],
            evidence=next(closest) if span.evidence is None else _locate(span.evidence, passages),
        )
        for span in prediction.spans
    ]
    return replace(prediction, spans=tuple(spans))


def _locate(evidence: Evidence, passages: Sequence[str]) -> Evidence:
    """Finds the passage of evidence in a joined context; a sentence that is in none of them is left out."""
    if not evidence.text:
        return Evidence(reason=evidence.reason)
    number = evidence.passage
    if number and number < len(passages) and passages[number][evidence.start : evidence.end] == evidence.text:
        return evidence
    begin = 0
    for number, passage in enumerate(passages):
        start, end = evidence.start - begin, evidence.end - begin
        if start >= 0 and passage[start:end] == evidence.text:
            return replace(evidence, start=start, end=end, passage=number)
        begin += len(passage) + len(PASSAGE_BREAK)
    return Evidence(reason=evidence.reason)


def find_closest(passages: Sequence[str], response: str, starts: Sequence[int]) -> list[Evidence]:
    """Finds for each span the sentence of the context that shares most content words with the span's sentence.

    Args:
        starts: The first character of each span in the response.
    """
    if not starts:
        return []
    places = [(number, *place) for number, text in enumerate(passages) for place in sentence_places(text)]
    words = [set(unicode_content_words(passages[number][begin:end])) for number, begin, end in places]
    sentences = sentence_places(response)
    found = []
    for start in starts:
        begin, end = next((one for one in sentences if one[0] <= start < one[1]), (0, len(response)))
        of_span = set(unicode_content_words(response[begin:end]))
        best = max(range(len(places)), key=lambda place: len(of_span & words[place]), default=None)
        if best is None or not of_span & words[best]:
            found.append(Evidence(reason=NOTHING))
            continue
        number, begin, end = places[best]
        found.append(Evidence(text=passages[number][begin:end], start=begin, end=end, passage=number, reason=CLOSEST))
    return found


def describe_mark(span: Span, *, max_characters: int = 120) -> str:
    """Describes a mark in one line: the text, the type, the reason, and the sentence that it refers to."""
    evidence, axes = span.evidence, ", ".join(filter(None, (span.relation, span.element))).replace("_", " ")
    shown = f'"{span.text}" ({axes})' if axes else f'"{span.text}"'
    if evidence is None:
        return shown
    sentence = " ".join(evidence.text.split())
    sentence = sentence if len(sentence) <= max_characters else f"{sentence[: max_characters - 3].rstrip()}..."
    return f"{shown}: {evidence.reason}" + (f' - "{sentence}"' if sentence else "")
