"""The report of a generator's training: its perplexity on the test set's responses, and answers to judge by eye."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from faithkit.metrics.perplexity import language_model_metrics
from faithkit.pages.tables import escape_terminal, metrics_table, new_field_table
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance, Rows, add_provenance
from faithkit.reports.report import Report, build_sample
from faithkit.statistics.metric import Metric


def perplexity_report(
    examples: Sequence[Example],
    rows: NDArray[np.float64],
    answers: Mapping[str, str],
    *,
    title: str,
    num_resamples: int = 1000,
    origin: Provenance | None = None,
) -> Report:
    """Loss, perplexity and token accuracy with intervals, beside a table of answers.

    Args:
        rows: See `faithkit.metrics.perplexity`.
        answers: What the model wrote, for some of the examples by id.
        origin: The model, and what it has seen of the examples; None leaves it out.
    """
    scored = language_model_metrics(examples, rows, num_resamples=num_resamples)
    tables = [metrics_table({"model": scored.metrics}, title=title)]
    if answers:
        shown = new_field_table("answers to judge")
        for example in examples:
            if example.id not in answers:
                continue
            shown.add_row("id", Text(escape_terminal(example.id, 400)))
            shown.add_row("knowledge", Text(escape_terminal(example.knowledge, 400)))
            if example.history:
                shown.add_row("last turn", Text(escape_terminal(example.history[-1].text, 400)))
            shown.add_row("response", Text(escape_terminal(example.response, 400)))
            shown.add_row("answer", Text(escape_terminal(answers[example.id], 400)), end_section=True)
        tables.append(shown)
    samples = tuple(build_sample(e, answer=answers[e.id]) for e in examples if e.id in answers)
    said = [(e, Prediction(id=e.id, text=answers[e.id])) for e in examples if e.id in answers]
    options: dict[str, Any] = {"notes": scored.notes, "samples": samples, "answers": said}
    report = Report(metrics=scored.metrics, tables=tuple(tables), **options)
    if origin is None:
        return report

    def score(chosen: Rows) -> Mapping[str, Metric]:
        left = [example for example, marked in zip(examples, chosen, strict=True) if marked]
        return language_model_metrics(left, rows[chosen], num_resamples=num_resamples).metrics

    return add_provenance(report, origin, score, title=title)
