"""Examples joined with predictions, as the arrays that every classification metric starts from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.records import HALLUCINATED, LABELS, UNPARSED, Example, Prediction
from faithkit.statistics.bootstrap import Groups

CLASSES = (*LABELS, UNPARSED)  # the columns of a confusion table: an unparsed reply is an outcome of its own


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Gold labels and predictions, row by row in the examples' order.

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


def align_predictions(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, judged: bool = True
) -> list[Prediction]:
    """Finds the prediction of each example, in the examples' order.

    Args:
        judged: Every prediction must have a label; responses that nobody judged have none.

    Raises:
        UserError: No examples, an id twice, ids that stand on one side only, or a label that is missing.
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
        hint = "score the same file, split and num_rows that the predictions were made on"
        raise UserError("; ".join(problems), hint=hint)
    unjudged = [id_ for id_ in ids if predictions[id_].label is None] if judged else []
    if unjudged:
        problem = f"{len(unjudged)} of {len(ids)} predictions have no label ({_list_first(unjudged)})"
        raise UserError(problem, hint="these are responses: score them with benchmark=faithdial, wow, ...")
    return [predictions[id_] for id_ in ids]


def join_outcomes(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Outcomes:
    """Joins examples and predictions by id into arrays.

    Raises:
        UserError: As `align`; or an example has no gold label.
    """
    aligned = align_predictions(examples, predictions)
    unlabelled = [example.id for example in examples if example.label is None]
    if unlabelled:
        problem = f"{len(unlabelled)} of {len(examples)} examples have no gold label ({_list_first(unlabelled)})"
        raise UserError(problem, hint="choose a split or a benchmark that is labelled")
    return Outcomes(
        gold=np.array([example.label == HALLUCINATED for example in examples], np.int8),
        called=np.array([CLASSES.index(prediction.label) for prediction in aligned], np.int8),
        scores=np.array(
            [np.nan if prediction.score is None else prediction.score for prediction in aligned], np.float64
        ),
        groups=Groups.of(example.group for example in examples),
    )


def _list_first(ids: Sequence[str], limit: int = 3) -> str:
    more = ", ..." if len(ids) > limit else ""
    return ", ".join(shorten(id_, 40) for id_ in ids[:limit]) + more
