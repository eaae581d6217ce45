"""The report of a generator's training: its perplexity on the test set's responses, and answers to judge by eye."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from faithkit.metrics.perplexity import KINDS, language_model_metrics
from faithkit.pages.page_tables import add_fields, context_fields, metrics_table, new_field_table
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance, add_provenance
from faithkit.reports.report import Report, Rows, build_sample
from faithkit.statistics.metric import Metric

NOT_IN_PERCENT = tuple(name for name, kind in KINDS.items() if kind.high > 1)


def perplexity_report(
    examples: Sequence[Example],
    rows: NDArray[np.float64],
    answers: Mapping[str, str],
    *,
    title: str,
    num_resamples: int = 1000,
    origin: Provenance | None = None,
) -> Report:
    """Reports loss, perplexity and token accuracy with intervals, and a table of answers.

    Args:
        rows: Sums by response, see `faithkit.metrics.perplexity`.
        answers: What the model wrote, for some of the examples by id.
        origin: The model, and what it has seen of the examples; None leaves it out.
    """

    def rescore(chosen: Rows) -> Mapping[str, Metric]:
        left = [example for example, marked in zip(examples, chosen, strict=True) if marked]
        return language_model_metrics(left, rows[chosen], num_resamples=num_resamples).metrics

    def build_table(systems: Mapping[str, Mapping[str, Metric]], *, title: str) -> Table:
        return metrics_table(systems, title=title, not_in_percent=NOT_IN_PERCENT)

    scored = language_model_metrics(examples, rows, num_resamples=num_resamples)
    answered = [example for example in examples if example.id in answers]
    tables = [build_table({"model": scored.metrics}, title=title)]
    if answered:
        shown = new_field_table("answers to judge")
        for example in answered:
            fields = {**context_fields(example), "response": example.response, "answer": answers[example.id]}
            add_fields(shown, {"id": example.id, **fields})
        tables.append(shown)
    report = Report(
        metrics=scored.metrics,
        tables=tuple(tables),
        notes=scored.notes,
        samples=tuple(build_sample(example, answer=answers[example.id]) for example in answered),
        answers=[(example, Prediction(id=example.id, text=answers[example.id])) for example in answered],
        rescore=rescore,
    )
    return add_provenance(report, origin, title=title, build_table=build_table)
