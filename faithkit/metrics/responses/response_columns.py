"""Responses joined with their examples, and what is measured of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faithkit.errors import UserError
from faithkit.metrics.classification import align_predictions, safe_ratio
from faithkit.records import Example, Prediction
from faithkit.statistics.bootstrap import Evaluation, Groups
from faithkit.statistics.metric import MetricKind
from faithkit.statistics.spread import Statistic, Values


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MetricColumns:
    """All that was measured of the responses to some examples.

    Args:
        columns: The values of each metric by name [N], NaN where it does not apply; its overall value is the mean.
        kinds: What each metric is, those of `corpus` included.
        corpus: Metrics that are no means over examples (BLEU, distinct-n), as functions of weights over groups.
        details: Further fields of each example's line in the scores file, such as Q2's questions.
    """

    groups: Groups
    columns: Mapping[str, Values]
    kinds: Mapping[str, MetricKind]
    corpus: Sequence[Statistic] = ()
    details: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if undeclared := [name for name in self.columns if name not in self.kinds]:
            names, table = ", ".join(undeclared), "faithkit/scores/measures.py"
            raise ValueError(f"no kind is declared for {names}: add it to RESPONSES in {table}")

    def evaluation(self) -> Evaluation:
        """Prepares the overall values; n counts the examples that define a metric."""
        counts = {name: int(np.isfinite(column).sum()) for name, column in self.columns.items()}
        defined = {name: column for name, column in self.columns.items() if counts[name]}
        statistics = (defined_means(self.groups, defined), *self.corpus)

        def statistic(weights: Values) -> dict[str, Values]:
            return {name: value for part in statistics for name, value in part(weights).items()}

        undefined = tuple(f"{name} is left out: no example defines it" for name, count in counts.items() if not count)
        notes = (*self.notes, *undefined)
        return Evaluation(groups=self.groups, statistic=statistic, kinds=self.kinds, n=counts, notes=notes)

    def rows(self) -> list[dict[str, Any]]:
        """Lists the values of each example, None if the metric does not apply, with its details."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        size = len(self.groups.index)
        values = [{n: v[i] if np.isfinite(v[i]) else None for n, v in columns.items()} for i in range(size)]
        details = self.details or [{}] * size
        return [{**row, **detail} for row, detail in zip(values, details, strict=True)]


def defined_means(groups: Groups, columns: Mapping[str, Values]) -> Statistic:
    """Makes a statistic of the means of columns over the rows where they are not NaN."""
    sums = {name: groups.sums(np.nan_to_num(column)) for name, column in columns.items()}
    sizes = {name: groups.sums(np.isfinite(column)) for name, column in columns.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(weights @ sums[name], weights @ sizes[name]) for name in columns}

    return statistic


@dataclass(frozen=True, slots=True, eq=False)
class PairedResponses:
    """Examples, a response to each, those of another system if there is one, and notes on what was left out."""

    examples: list[Example]
    texts: list[str]
    against: list[str] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        predictions: Mapping[str, Prediction],
        against: Mapping[str, Prediction] | None = None,
        *,
        incomplete: bool = False,
    ) -> "PairedResponses":
        """Joins examples and predictions by id.

        Args:
            incomplete: Leaves out examples without a response and responses without an example, instead of refusing
                them; `against` must answer all that remain.

        Raises:
            UserError: Ids on one side only, or predictions without any response.
        """
        notes: tuple[str, ...] = ()
        kept = [example for example in examples if example.id in predictions]
        # With nothing in common `align_predictions` raises the usual error.
        if incomplete and kept and not len(kept) == len(examples) == len(predictions):
            note = (
                f"only {len(kept):,} of {len(examples):,} examples and of {len(predictions):,} responses are scored: "
                "the others have no counterpart"
            )
            examples, predictions, notes = kept, {one.id: predictions[one.id] for one in kept}, (note,)
        texts = _collect_texts(examples, predictions)
        if against is None:
            return cls(list(examples), texts, None, notes)
        ids = {example.id for example in examples}
        other = {id_: row for id_, row in against.items() if id_ in ids} if incomplete else against
        try:
            return cls(list(examples), texts, _collect_texts(examples, other), notes)
        except UserError as error:
            raise UserError(f"against: {error.problem}", hint="compare two files over the same examples") from error


def _collect_texts(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> list[str]:
    texts = [row.text for row in align_predictions(examples, predictions, judged=False)]
    if not any(texts):
        hint = "each line needs its response as text; verdicts on responses are scored with benchmark=faithcritic"
        raise UserError("these predictions hold no responses: every text is empty", hint=hint)
    return texts
