"""One HTML page that shows each answer with its marks: what people marked against what a tagger marked.

The page holds everything itself; its Content-Security-Policy forbids the network and every script but its own, which it
names by hash. Answers are data in a JSON block, and the script puts them in as text, never as markup, fifty at a time,
so twenty thousand answers open. Marks are cut here and not sent as offsets: Python counts characters, JavaScript counts
UTF-16 units.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.outcomes import align
from faithkit.evaluation.page_template import page_parts
from faithkit.evaluation.span_outcomes import check_spans, merge, shared
from faithkit.files.atomic import atomic_file, disk_errors, dumps
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction, Span

# A piece of a text: plain, or with the places of the gold and of the predicted spans that cover it.
Piece = str | tuple[str, list[int], list[int]]

_SCRIPTS = ("answer.js", "filters.js")
# In a script element only these can end or open anything; JSON writes them as well without.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def write_page(
    path: str | Path,
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    metrics: Mapping[str, Metric] | None = None,
) -> None:
    """Writes the page, replacing the file in one step; the same input gives the same bytes.

    Args:
        metrics: Shown at the top, the short names as they are scored (`response_f1`, `task/qa/char_f1`).

    Raises:
        UserError: Examples and predictions do not belong together, or a predicted span leaves its answer.
    """
    aligned = align(examples, predictions)
    contexts = {text: place for place, text in enumerate(dict.fromkeys(example.knowledge for example in examples))}
    for example, prediction in zip(examples, aligned, strict=True):
        check_spans(prediction, len(example.response))
    pairs = zip(examples, aligned, strict=True)
    rows = (row(example, prediction, contexts[example.knowledge]) for example, prediction in pairs)
    scores = (_metric(name, metric) for name, metric in (metrics or {}).items())
    start, end = page_parts("page.html", title=title, styles=("style.css",), scripts=_SCRIPTS)
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for line in _blocks(scores=scores, contexts=contexts, rows=rows):
            file.write(line.encode())
        file.write(end.encode())


def cut(text: str, gold: Sequence[Span], called: Sequence[Span]) -> list[Piece]:
    """Cuts the text into pieces, each covered by the same spans throughout; joined, they are the text again."""
    inner = (end for span in (*gold, *called) if span.start < span.end for end in (span.start, span.end))
    bounds = sorted({0, len(text), *inner})
    pieces: list[Piece] = []
    for start, end in pairwise(bounds):
        over = _covering(gold, start, end), _covering(called, start, end)
        pieces.append((text[start:end], *over) if any(over) else text[start:end])
    return pieces


def _covering(spans: Sequence[Span], start: int, end: int) -> list[int]:
    return [place for place, span in enumerate(spans) if span.start <= start and end <= span.end]


def row(example: Example, prediction: Prediction, context: int) -> dict[str, Any]:
    """Builds the page's data of one answer; `context` is the place of its text among the contexts."""
    gold, called = _marked(example.spans), _marked(prediction.spans)
    return {
        "id": example.id,
        "task": str(example.meta.get("task") or ""),
        "model": str(example.meta.get("model") or ""),
        "outcome": response_outcome(example, prediction),
        "kinds": span_kinds(example, prediction),
        "gold": _gold(example),
        "called": prediction.label,
        "score": _rounded(prediction.score),
        "context": context,
        "turns": [[turn.speaker, turn.text] for turn in example.history],
        "pieces": cut(example.response, gold, called),
        "gold_spans": [[span.label, _rounded(_share(span, called))] for span in gold],
        "called_spans": [
            [span.label, _rounded(span.score), None if example.spans is None else _rounded(_share(span, gold))]
            for span in called
        ],
    }


def response_outcome(example: Example, prediction: Prediction) -> str:
    """Compares the call on the whole answer with its gold label."""
    if prediction.label == UNPARSED:
        return "unparsed"
    gold = _gold(example)
    if gold is None:
        return "not judged"
    if prediction.label == gold:
        return f"right {gold}"
    return "missed" if gold == HALLUCINATED else "false alarm"


def span_kinds(example: Example, prediction: Prediction) -> list[str]:
    """Names the outcomes of an answer's spans; a span counts as found where one character of it is."""
    if example.spans is None:
        return ["not marked"]
    gold, called = _marked(example.spans), _marked(prediction.spans)
    found = [_share(span, called) > 0 for span in gold]
    right = [_share(span, gold) > 0 for span in called]
    kinds = {
        "missed span": not all(found),
        "false alarm span": not all(right),
        "found span": any(found),
        "no span, rightly": not found and not right,
    }
    return [kind for kind, holds in kinds.items() if holds]


def _share(span: Span, others: Sequence[Span]) -> float:
    """Computes the share of the span's characters that the others cover together."""
    return shared(merge([span]), merge(others)) / (span.end - span.start)


def _marked(spans: Sequence[Span] | None) -> list[Span]:
    """Drops empty spans, as the metrics do."""
    return [span for span in spans or () if span.start < span.end]


def _gold(example: Example) -> str | None:
    """Reads the gold label of an answer: its label or, where it has none, its spans, as the metrics do."""
    if example.label is None and example.spans is not None:
        return HALLUCINATED if example.spans else FAITHFUL
    return example.label


def _blocks(**blocks: Iterable[Any]) -> Iterator[str]:
    """Writes each block as a list in a script element that the browser keeps as text, one item a line."""
    for name, items in blocks.items():
        yield f'<script type="application/json" id="{name}">[\n'
        for place, item in enumerate(items):
            yield (",\n" if place else "") + dumps(item).translate(_ESCAPES)
        yield "\n]</script>\n"


def _metric(name: str, metric: Metric) -> list[Any]:
    return [name, _rounded(metric.value), _rounded(metric.low), _rounded(metric.high)]


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
