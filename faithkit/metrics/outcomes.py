"""Examples joined with predictions, once, as the arrays that every classification metric starts from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.records import HALLUCINATED, LABELS, UNPARSED, Example, Prediction
from faithkit.statistics.bootstrap import Groups

CLASSES = (*LABELS, UNPARSED)  # the columns of a confusion table: an unparsed reply is an outcome by itself
# Above the first share of unparsed replies reports say so; above the second they show no other figure of the model.
REPORTED_UNPARSED, TOO_MANY_UNPARSED = 0.05, 0.5
NOT_SHOWN = "most replies could not be read as a verdict; metrics.json counts them as wrong"


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Gold labels and predictions, row by row in the order of the examples.

    Args:
        gold: 1 where hallucinated [N].
        called: Position in `CLASSES` [N]: 0 faithful, 1 hallucinated, 2 unparsed.
        scores: P(hallucinated) [N], NaN where the detector gave none.
        groups: The dialogue or document of each row.
    """

    gold: NDArray[np.int8]
    called: NDArray[np.int8]
    scores: NDArray[np.float64]
    groups: Groups

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Marks the rows that have a score [N]."""
        return ~np.isnan(self.scores)

    def with_predictions(self, predictions: Iterable[Prediction]) -> "Outcomes":
        """Replaces the predictions by those of another detector, in the order of the rows."""
        rows = list(predictions)
        called = np.array([CLASSES.index(row.label) for row in rows], np.int8)
        return replace(self, called=called, scores=scores_of(rows))

    def select(self, rows: NDArray[np.bool_], *, keep_groups: bool = False) -> "Outcomes":
        """Selects the marked rows.

        Args:
            keep_groups: Keeps groups that have no rows left, so that the resamples are those of all rows.
        """
        index, count = self.groups.index[rows], self.groups.count
        if not keep_groups:
            names, index = np.unique(index, return_inverse=True)
            count = len(names)
        return Outcomes(self.gold[rows], self.called[rows], self.scores[rows], Groups(index, count))


def scores_of(predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    """Collects P(hallucinated) [N], NaN where there is none."""
    return np.array([np.nan if row.score is None else row.score for row in predictions], np.float64)


def align_predictions(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, judged: bool = True
) -> list[Prediction]:
    """Finds the prediction of each example, in the order of the examples.

    Args:
        judged: Every prediction must have a label; generated responses have none.

    Raises:
        UserError: No examples, duplicate ids, ids on one side only, or a missing label.
    """
    if not examples:
        raise UserError("there are no examples to score", hint="check benchmark.path, split and num_rows")
    ids = [example.id for example in examples]
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(id_ for id_ in ids if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise UserError(f"two examples have the id {shorten(twice)}", hint="make the ids of the data unique")
    missing = [id_ for id_ in ids if id_ not in predictions]
    extra = set(predictions).difference(ids) if len(predictions) + len(missing) > len(ids) else ()
    if missing or extra:
        problems = []
        if missing:
            problems.append(f"{len(missing)} of {len(ids)} examples have no prediction ({_list_first(missing)})")
        if extra:
            in_order = [id_ for id_ in predictions if id_ in extra]
            problems.append(f"{len(extra)} of {len(predictions)} predictions have no example ({_list_first(in_order)})")
        hint = "score the same file, split, num_rows and seed that the predictions were made on"
        raise UserError("; ".join(problems), hint=hint)
    unjudged = [id_ for id_ in ids if predictions[id_].label is None] if judged else []
    if unjudged:
        problem = f"{len(unjudged)} of {len(ids)} predictions have no label ({_list_first(unjudged)})"
        raise UserError(problem, hint="these are responses: score them with benchmark=faithdial, wow, ...")
    return [predictions[id_] for id_ in ids]


def join_outcomes(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Outcomes:
    """Joins examples and predictions by id into arrays.

    Raises:
        UserError: As `align_predictions`; or an example has no gold label.
    """
    aligned = align_predictions(examples, predictions)
    unlabelled = [example.id for example in examples if example.label is None]
    if unlabelled:
        problem = f"{len(unlabelled)} of {len(examples)} examples have no gold label ({_list_first(unlabelled)})"
        raise UserError(problem, hint="choose a split or a benchmark that is labelled")
    gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)
    groups = Groups.of(example.group for example in examples)
    return Outcomes(gold, gold, scores_of(aligned), groups).with_predictions(aligned)


def _list_first(ids: Sequence[str]) -> str:
    return ", ".join(shorten(id_, 40) for id_ in ids[:3]) + ", ..." * (len(ids) > 3)
