"""HaluEval's own accuracy: verdicts read as its script reads them, beside the same replies read strictly.

Its script looks for the letters Yes and No anywhere in a reply. One alone is the verdict, so that None and Nobel say
No; both or neither is a failure, which counts as wrong. So is a request without a reply, whatever the error's words.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.baselines.word_overlap import length_predictions
from faithkit.metrics.outcomes import align
from faithkit.pages.tables import figures_table, harmless, percent
from faithkit.published.judges import ALL
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.report import Report
from faithkit.statistics.intervals import Groups, Metric, bootstrap, means

COLUMNS = {
    "accuracy": "official",
    "failed_rate": "failed",
    "strict_accuracy": "ours",
    "unparsed_rate": "unparsed",
    "length_accuracy": "length",
}


def read_officially(text: str) -> str:
    """Reads a verdict as HaluEval's script does.

    >>> [read_officially(text) for text in ("Yes.", "None of it.", "Yes and No", "It is.")]
    ['hallucinated', 'faithful', 'unparsed', 'unparsed']
    """
    yes, no = "Yes" in text, "No" in text
    if yes == no:
        return UNPARSED
    return HALLUCINATED if yes else FAITHFUL


def official_report(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000
) -> Report | None:
    """Computes `official/accuracy`, `official/failed_rate` and, by task, `official/task/qa/accuracy`.

    None where nothing was written that could be read so.
    """
    if not any(one.text or one.failed for one in predictions.values()):
        return None
    by_task: dict[str, list[Example]] = {}
    for example in examples:
        by_task.setdefault(str(example.meta.get("task", "")), []).append(example)
    parts = {ALL: list(examples), **by_task} if len(by_task) > 1 else by_task
    found = {part: _score(rows, predictions, num_resamples) for part, rows in sorted(parts.items())}
    metrics: dict[str, Metric] = {}
    for part, scored in found.items():
        prefix = "official/" if part == ALL or len(found) == 1 else f"official/task/{part}/"
        metrics |= {f"{prefix}{name}": metric for name, metric in scored.items()}
    whole = found[ALL] if ALL in found else next(iter(found.values()))
    accuracy, failed = percent(whole["accuracy"]), percent(whole["failed_rate"], bounds=False)
    note = f"as HaluEval's script reads replies: accuracy {accuracy}, failed {failed}"
    return Report(metrics=metrics, tables=(_table(found),), notes=(note,))


def _score(rows: Sequence[Example], predictions: Mapping[str, Prediction], num_resamples: int) -> dict[str, Metric]:
    said = align(rows, {row.id: predictions[row.id] for row in rows})
    lengths = length_predictions(rows)
    gold = np.array([str(row.label) for row in rows])
    official, strict, length = (
        np.array(labels)
        for labels in (
            [UNPARSED if one.failed else read_officially(one.text) for one in said],
            [str(one.label) for one in said],
            [str(lengths[row.id].label) for row in rows],
        )
    )
    columns = {
        "accuracy": official == gold,
        "failed_rate": official == UNPARSED,
        "strict_accuracy": strict == gold,
        "unparsed_rate": strict == UNPARSED,
        "length_accuracy": length == gold,
    }
    groups = Groups.of(row.group for row in rows)
    return bootstrap(groups, means(groups, columns), shares=True, num_resamples=num_resamples).metrics


def _table(found: Mapping[str, Mapping[str, Metric]]) -> Table:
    title = "accuracy as HaluEval's script reads replies, percent"
    table = figures_table(title, "task", COLUMNS.values(), min_width=14)
    for part, metrics in found.items():
        cells = [percent(metrics[name], bounds=name == "accuracy") for name in COLUMNS]
        table.add_row(Text(harmless(part) or ALL), *cells)
    table.caption = Text(
        "official: Yes or No anywhere in the reply, both or neither failed and wrong; ours: the same replies read "
        "strictly; length: longer than the median is hallucinated"
    )
    return table
