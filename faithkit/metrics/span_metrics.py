"""Span metrics of a tagger, by response and by character, with intervals over sources.

Use `response_f1` for the decision on a whole response and `char_f1` for the position of its hallucination. Long spans
dominate the character level; it does not match whole spans, and ignores their types.

Response level, the hallucinated class: a response counts as called where the prediction's label is hallucinated.
`response_precision` = called rightly / called, `response_recall` = called rightly / hallucinated, `response_f1` =
2 x called rightly / (called + hallucinated), `response_auroc` and `response_ece` of the score. The same three as
`response_by_spans_...` call a response hallucinated when any character is predicted in it, whatever its label:
RAGTruth's rule, and that of the published figures.

Character level (Niu et al. 2024, section 5.3): `char_precision` = characters both gold and predicted / predicted ones,
`char_recall` = the same / gold ones, `char_f1` = 2 x the same / (predicted + gold). Both sides are unions of spans
within a response, so no value leaves [0, 1]. Characters are summed over all responses before dividing (micro), those of
faithful responses too. `type/<type>/char_recall` has the gold spans of one type below and their predicted characters
above; predictions of any type count, as in the paper's Figure 4. `relation/<name>/char_recall` and
`element/<name>/char_recall` do the same for the axes of `faithkit.records`; `.../char_precision` has the predicted
spans of one relation or element below and their gold characters above.

0/0 is 0 for precision, recall and F1 of the data; a resample that leaves 0/0 of what the data define does not count.
`response_ece_debiased` is corrected for what few rows add to `response_ece`. Undefined metrics are left out: recall of
an unmarked type, AUROC of one class, and both score metrics without scores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration import NUM_BINS, assign_bins
from faithkit.errors import UserError, shorten
from faithkit.metrics.classification import Ranking, align_predictions, safe_ratio, scores_of
from faithkit.records import AXES, FAITHFUL, HALLUCINATED, SPAN_TYPES, UNTYPED, Example, Prediction, Span
from faithkit.statistics.bootstrap import Evaluation, Groups
from faithkit.statistics.metric import ACCURACY, CALIBRATION_ERROR, MetricKind
from faithkit.statistics.spread import Statistic, Values

AXES_OF_GOLD = {"type": SPAN_TYPES, **AXES}
Runs = list[tuple[int, int]]  # stretches [start, end) that do not overlap, in order


@dataclass(frozen=True, slots=True, eq=False)
class SpanOutcomes:
    """Gold and predicted spans, row by row in the examples' order.

    Args:
        gold: 1 where the response is hallucinated [N]: by its label, or where it has none, by its spans.
        called: 1 where the prediction's label is hallucinated [N]; an unparsed reply is not a call.
        flagged: 1 where a character is predicted [N], whatever the label says.
        scores: P(hallucinated) [N], NaN where the detector gave none.
        marked: Characters of the gold spans [N].
        found: Characters of the predicted spans [N].
        hits: Characters in both [N].
        by_type: For each metric of a type, such as `type/LABEL/char_recall`, the characters of its spans, and those of
            them that are both gold and predicted [N, 2]. `UNTYPED` is no type.
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
    by_type: Mapping[str, NDArray[np.int64]]
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
    counts = np.zeros((len(examples), 3), np.int64)
    # By the place of the metric in reports: types in the order of their axis, other labels after them.
    by_type: dict[tuple[int, int, str], NDArray[np.int64]] = {}
    for row, (example, prediction) in enumerate(zip(examples, aligned, strict=True)):
        spans = example.spans or ()
        found = merge_spans(check_spans(prediction, len(example.response)))
        if not spans and not found:
            continue
        marked = merge_spans(spans)
        counts[row] = count_characters(marked), count_characters(found), count_shared(marked, found)
        recalled, predicted = ("char_recall", spans, found), ("char_precision", prediction.spans, marked)
        for place, (axis, choices) in enumerate(AXES_OF_GOLD.items()):
            # A detector's own labels are not compared with those of the data.
            for metric, divided, others in (recalled, predicted) if axis in AXES else (recalled,):
                parts: dict[str, list[Span]] = {}
                for span in divided:
                    value = getattr(span, axis)
                    if value not in (None, UNTYPED) and span.start < span.end:
                        parts.setdefault(value, []).append(span)
                for value, part in parts.items():
                    rank = choices.index(value) if value in choices else len(choices)
                    key = (place, rank, f"{axis}/{value}/{metric}")
                    of_type = by_type.setdefault(key, np.zeros((len(examples), 2), np.int64))
                    runs = merge_spans(part)
                    of_type[row] = count_characters(runs), count_shared(runs, others)
    gold = [bool(e.spans) if e.label is None else e.label == HALLUCINATED for e in examples]
    return SpanOutcomes(
        gold=np.array(gold, np.int8),
        called=np.array([prediction.label == HALLUCINATED for prediction in aligned], np.int8),
        flagged=(counts[:, 1] > 0).astype(np.int8),
        scores=scores_of(aligned),
        marked=counts[:, 0],
        found=counts[:, 1],
        hits=counts[:, 2],
        by_type={key[-1]: by_type[key] for key in sorted(by_type)},
        tasks=np.array([str(example.meta.get("task") or "") for example in examples]),
        models=np.array([str(example.meta.get("model") or "") for example in examples]),
        groups=Groups.of(example.group for example in examples),
    )


def check_spans(prediction: Prediction, length: int) -> tuple[Span, ...]:
    """Checks the spans of a prediction on a response of so many characters, and gives them as runs.

    Raises:
        UserError: A bound that is not a whole number, or a span that reaches beyond the response.
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


AUROC, ECE = "response_auroc", "response_ece"
LEVELS, SHARES = ("response", "response_by_spans", "char"), ("f1", "precision", "recall")
NOTHING_FOUND = "no prediction marks a character: char_ and response_by_spans_ metrics are 0"


def span_kinds(names: Iterable[str]) -> dict[str, MetricKind]:
    """Declares the kinds of span metrics by name: shares of counted characters, responses or pairs, but for the ECE."""
    return {name: CALIBRATION_ERROR if name.rpartition("/")[2] == ECE else ACCURACY for name in names}


def evaluate_spans(outcomes: SpanOutcomes) -> Evaluation:
    """Prepares every span metric: overall, `task/<task>/...`, `model/<name>/...`, `type/...`.

    `n` counts the responses behind a metric, for a type those with a span of it.
    """
    counts: dict[str, int] = {}
    statistics: dict[str, Statistic] = {}
    for prefix, rows in subsets(outcomes).items():
        statistics[prefix] = overall_statistic(outcomes, rows)
        scored = int((rows & ~np.isnan(outcomes.scores)).sum())
        counts |= {f"{prefix}{level}_{name}": int(rows.sum()) for level in LEVELS for name in SHARES}
        counts |= {prefix + AUROC: scored, prefix + ECE: scored}
    notes = []
    total, without = len(outcomes.gold), int(np.isnan(outcomes.scores).sum())
    if without == total:
        notes.append(f"no prediction has a score: {AUROC} and {ECE} are left out")
    elif without:
        notes.append(f"{without} of {total} predictions have no score: {AUROC} and {ECE} leave them out")
    if not 0 < outcomes.gold.sum() < total:
        notes.append(f"every response is {HALLUCINATED if outcomes.gold.any() else FAITHFUL}: {AUROC} is left out")
    if not outcomes.marked.any():
        notes.append("no character is marked in the data: char_ metrics are 0")
    elif not outcomes.found.any():
        notes.append(NOTHING_FOUND)
    elif differ := int((outcomes.called != outcomes.flagged).sum()):
        rules = "response_ metrics follow the label, response_by_spans_ the spans"
        notes.append(f"{differ} of {total} predictions differ in label and spans: {rules}")
    counts |= {name: int((each[:, 0] > 0).sum()) for name, each in outcomes.by_type.items()}
    by_type = {name: outcomes.groups.sums(each) for name, each in outcomes.by_type.items()}  # [G, 2]

    def statistic(weights: Values) -> dict[str, Values]:
        found: dict[str, Values] = {}
        for prefix, part in statistics.items():
            found |= {prefix + name: value for name, value in part(weights).items()}
        with np.errstate(invalid="ignore"):  # NaN where a resample has no span of the type
            for name, each in by_type.items():
                of_type, in_both = (weights @ each).T
                found[name] = in_both / of_type
        return found

    kinds = span_kinds(counts)
    return Evaluation(groups=outcomes.groups, statistic=statistic, kinds=kinds, n=counts, notes=tuple(notes))


def subsets(outcomes: SpanOutcomes) -> dict[str, NDArray[np.bool_]]:
    """Marks the rows behind each prefix of metric names: all rows, those of each task, those of each model."""
    found = {"": np.ones(len(outcomes.gold), bool)}
    lower = np.char.lower(outcomes.tasks)
    found |= {f"task/{task}/": lower == task for task in sorted(set(lower.tolist())) if task}
    return found | {f"model/{m}/": outcomes.models == m for m in sorted(set(outcomes.models.tolist())) if m}


def overall_statistic(outcomes: SpanOutcomes, rows: NDArray[np.bool_] | None = None) -> Statistic:
    """Makes a function of group weights for the metrics of all rows, or of some; NaN on a resample without any of them.

    Those of tasks, models and types are not computed.
    """
    rows = np.ones(len(outcomes.gold), bool) if rows is None else rows
    groups = Groups(outcomes.groups.index[rows], outcomes.groups.count)
    gold, called, scores = outcomes.gold[rows], outcomes.called[rows], outcomes.scores[rows]
    flagged = outcomes.flagged[rows]
    responses = np.ones(len(gold)), gold, called, gold * called, flagged, gold * flagged
    characters = outcomes.marked[rows], outcomes.found[rows], outcomes.hits[rows]
    table = groups.sums(np.stack([*responses, *characters], axis=1))  # [G, 9]
    scored = ~np.isnan(scores)
    in_groups = Groups(groups.index[scored], groups.count)
    gaps = (scores - gold)[scored, None] * np.eye(NUM_BINS)[assign_bins(scores[scored])]
    in_bins, num_scored = in_groups.sums(gaps), in_groups.sums(np.ones(len(gaps)))  # [G, bins], [G]
    ranking = None
    if 0 < gold[scored].sum() < len(gaps):
        ranking = Ranking(scores[scored], gold[scored], in_groups)
    whole = table.sum(axis=0)

    def values(weights: Values) -> dict[str, Values]:
        total, hallucinated, calls, right, flags, right_flags, marked, predicted, hits = (weights @ table).T
        found = _shares("response", right, calls, hallucinated, (whole[2], whole[1]))
        found |= _shares("response_by_spans", right_flags, flags, hallucinated, (whole[4], whole[1]))
        found |= _shares("char", hits, predicted, marked, (whole[7], whole[6]))
        found = {name: np.where(total > 0, value, np.nan) for name, value in found.items()}
        if ranking is not None:
            found[AUROC] = ranking(weights)["auroc"]
        if len(gaps):
            with np.errstate(invalid="ignore"):
                error = np.abs(weights @ in_bins).sum(axis=1) / (weights @ num_scored)
            found[ECE] = np.minimum(error, 1.0)  # sums of rounded numbers
        return found

    return values


def _shares(
    level: str, both: Values, predicted: Values, gold: Values, in_all: tuple[float, float]
) -> dict[str, Values]:
    """Computes F1, precision and recall; `in_all` counts what is predicted and what is gold in the whole data."""
    return {
        f"{level}_f1": safe_ratio(2 * both, predicted + gold, sum(in_all)),
        f"{level}_precision": safe_ratio(both, predicted, in_all[0]),
        f"{level}_recall": safe_ratio(both, gold, in_all[1]),
    }
