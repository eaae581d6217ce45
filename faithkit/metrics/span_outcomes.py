"""Gold and predicted spans joined by response, as the counts of characters behind every span metric.

What counts is the union: a character that two spans mark counts once, and so does a span given twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.metrics.outcomes import align_predictions, scores_of
from faithkit.records import HALLUCINATED, SPAN_TYPES, UNTYPED, Example, Prediction, Span
from faithkit.statistics.bootstrap import Groups

Runs = list[tuple[int, int]]  # stretches [start, end) that do not overlap, in order


@dataclass(frozen=True, slots=True, eq=False)
class SpanOutcomes:
    """Gold and predicted spans, row by row in the examples' order.

    Args:
        gold: 1 where the response is hallucinated [N]: by its label, or where it has none, by its spans.
        called: 1 where the prediction's label is hallucinated [N]; an unparsed reply is no call.
        flagged: 1 where a character is predicted [N], whatever the label says.
        scores: P(hallucinated) [N], NaN where the detector gave none.
        marked: Characters of the gold spans [N].
        found: Characters of the predicted spans [N].
        hits: Characters in both [N].
        types: The gold spans' labels, those of `SPAN_TYPES` first, without `UNTYPED`.
        type_marked: As `marked`, by type [N, T].
        type_hits: As `hits`, by type of the gold span [N, T].
        tasks: The task of each row, "" where the data does not say.
        models: The model that wrote the response of each row, "" where the data does not say.
        groups: The source of each row.
    """

    gold: NDArray[np.int8]
    called: NDArray[np.int8]
    flagged: NDArray[np.int8]
    scores: NDArray[np.float64]
    marked: NDArray[np.int64]
    found: NDArray[np.int64]
    hits: NDArray[np.int64]
    types: tuple[str, ...]
    type_marked: NDArray[np.int64]
    type_hits: NDArray[np.int64]
    tasks: NDArray[np.str_]
    models: NDArray[np.str_]
    groups: Groups


def join_spans(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> SpanOutcomes:
    """Joins examples and predictions into counts; 100,000 responses take seconds.

    A predicted span without characters (start = end) marks nothing and is passed over.

    Raises:
        UserError: As `align_predictions`; an example without marked spans; a predicted span outside its response.
    """
    aligned = align_predictions(examples, predictions)
    unmarked = [example.id for example in examples if example.spans is None]
    if unmarked:
        problem = f"{len(unmarked)} of {len(examples)} examples have no marked spans ({shorten(unmarked[0], 40)}, ...)"
        raise UserError(problem, hint="score spans on a benchmark that marks them")
    labels = {span.label for example in examples for span in example.spans or ()} - {UNTYPED}
    types = (*(label for label in SPAN_TYPES if label in labels), *sorted(labels.difference(SPAN_TYPES)))
    counts = np.zeros((len(examples), 3 + 2 * len(types)), np.int64)
    for row, (example, prediction) in enumerate(zip(examples, aligned, strict=True)):
        spans = example.spans or ()
        found = merge_spans(check_spans(prediction, len(example.response)))
        if not spans and not found:
            continue
        marked = merge_spans(spans)
        counts[row, :3] = count_characters(marked), count_characters(found), count_shared(marked, found)
        for label in {span.label for span in spans} - {UNTYPED}:
            place = 3 + types.index(label)
            runs = merge_spans(span for span in spans if span.label == label)
            counts[row, place], counts[row, place + len(types)] = count_characters(runs), count_shared(runs, found)
    gold = [bool(e.spans) if e.label is None else e.label == HALLUCINATED for e in examples]
    return SpanOutcomes(
        gold=np.array(gold, np.int8),
        called=np.array([prediction.label == HALLUCINATED for prediction in aligned], np.int8),
        flagged=(counts[:, 1] > 0).astype(np.int8),
        scores=scores_of(aligned),
        marked=counts[:, 0],
        found=counts[:, 1],
        hits=counts[:, 2],
        types=types,
        type_marked=counts[:, 3 : 3 + len(types)],
        type_hits=counts[:, 3 + len(types) :],
        tasks=np.array([str(example.meta.get("task") or "") for example in examples]),
        models=np.array([str(example.meta.get("model") or "") for example in examples]),
        groups=Groups.of(example.group for example in examples),
    )


def check_spans(prediction: Prediction, length: int) -> tuple[Span, ...]:
    """Checks the spans of a prediction on a response of so many characters, and gives them as runs.

    Raises:
        UserError: A bound that is no whole number, or a span that reaches beyond the response.
    """
    for span in prediction.spans:
        whole = isinstance(span.start, Integral) and isinstance(span.end, Integral)
        if whole and span.end <= length:  # a Span itself refuses a start below 0 or after its end
            continue
        wrong = "beyond the response's" if whole else "which is no stretch of the response's"
        raise UserError(
            f"prediction {shorten(prediction.id)} marks [{span.start!r}, {span.end!r}), {wrong} {length:,} characters",
            hint="count in characters of the response as the data has it, not in bytes or tokens; end is exclusive",
        )
    return prediction.spans


def merge_spans(spans: Iterable[Span]) -> Runs:
    """Unites spans: those that overlap become one, those that only touch stay two, empty ones go."""
    runs: Runs = []
    for start, end in sorted((span.start, span.end) for span in spans if span.start < span.end):
        if runs and start < runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        else:
            runs.append((start, end))
    return runs


def count_characters(runs: Runs) -> int:
    """Counts the characters of runs."""
    return sum(end - start for start, end in runs)


def count_shared(first: Runs, second: Runs) -> int:
    """Counts the characters that lie in both."""
    total = left = right = 0
    while left < len(first) and right < len(second):
        total += max(0, min(first[left][1], second[right][1]) - max(first[left][0], second[right][0]))
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return total
