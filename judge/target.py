"""The reply that a judge learns to give to an example."""

import json
from collections.abc import Callable, Mapping

from faithkit.errors import UserError, shorten
from faithkit.records import HALLUCINATED, Example
from judge.asking import JUDGEMENT, SPANS, VERDICT
from judge.reply import LIST_KEY, NO, YES


def target_text(example: Example, ask: str) -> str:
    """Writes the right reply: a verdict, the dataset's own judgement or one made of its spans, or the list of spans.

    Raises:
        UserError: The example has no label, or no spans where they are asked for.
    """
    if example.label is None:
        hint = "train a judge on labelled data: data=halludial, ragtruth, faithcritic, ..."
        raise UserError(f"example {shorten(example.id)} has no label", place=example.source, hint=hint)
    return _WRITERS[ask](example)


def _verdict(example: Example) -> str:
    return YES if example.label == HALLUCINATED else NO


def _judgement(example: Example) -> str:
    if example.target:
        return example.target.strip()
    quoted = ", ".join(f'"{part}"' for part in _parts(example))
    return f"{_verdict(example)}. {quoted}".rstrip(" ")


def _spans(example: Example) -> str:
    if example.spans is None:
        hint = "use model.ask=verdict, or data with spans: data=ragtruth, spans"
        raise UserError(f"example {shorten(example.id)} has no spans to learn", place=example.source, hint=hint)
    return json.dumps({LIST_KEY: _parts(example)}, ensure_ascii=False)


def _parts(example: Example) -> list[str]:
    spans = sorted(example.spans or (), key=lambda span: (span.start, span.end))
    return list(dict.fromkeys(example.response[span.start : span.end].strip() for span in spans))


_WRITERS: Mapping[str, Callable[[Example], str]] = {VERDICT: _verdict, JUDGEMENT: _judgement, SPANS: _spans}
LEARNT = tuple(_WRITERS)  # the ways of asking that a judge can be trained for
