"""The report of comparative judging: both orders, position bias, parts of the data, baselines, the paper's figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.metrics.comparative import BIAS, ORDER, OTHER, baseline_predictions, comparison_metrics
from faithkit.pages.tables import (
    add_context,
    choose_examples,
    fields_table,
    figure,
    figures_table,
    harmless,
    outcome_of,
    percent,
)
from faithkit.published.tables import published_table
from faithkit.records import Example, Prediction
from faithkit.reports.parts import PARTS, divide
from faithkit.reports.provenance import Provenance, Rows, select, with_provenance
from faithkit.reports.report import Report
from faithkit.statistics.intervals import Metric

# By metric: the head of its column, and the column of the paper's table.
SHOWN: Mapping[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "mean"),
    "accuracy_first": ("first", "hallucinated_first"),
    "accuracy_last": ("last", "hallucinated_last"),
    "both_orders": ("both", ""),
    BIAS: ("bias", ""),
    "invalid_rate": ("inv.", "invalid"),
}
KEYS = {"longer reply": "length_", "word overlap": "overlap_"}
MODEL = "model"
NUM_PUBLISHED = 3
CAPTION = (
    "first, last: where the hallucinated reply stood; both: right in both orders; bias: share of answers that name the "
    "first less share that name the second; inv.: neither named"
)


def comparison_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
    num_examples: int = 5,
    origin: Provenance | None = None,
) -> Report:
    """Computes metrics of the judge, of its parts (`task/qa/accuracy`) and of baselines (`length_accuracy`).

    Args:
        examples: Both rows of each pair, as `order_pair` makes them.
        dataset: Whose published figures stand beside; empty for none.
    """
    scored = comparison_metrics(examples, predictions, num_resamples=num_resamples)
    metrics = dict(scored.metrics)
    rows: dict[str, Mapping[str, Metric]] = {MODEL: scored.metrics}
    for name, found_by in baseline_predictions(examples).items():
        rows[name] = comparison_metrics(examples, found_by, num_resamples=num_resamples).metrics
        metrics |= {f"{KEYS[name]}{metric}": value for metric, value in rows[name].items()}
    for part, kept in _parts(examples).items():
        systems: dict[str, Mapping[str, Prediction]] = {MODEL: predictions, **baseline_predictions(kept)}
        for name, said in systems.items():
            own = {example.id: said[example.id] for example in kept}
            found = comparison_metrics(kept, own, num_resamples=num_resamples).metrics
            rows[f"{part.partition('/')[2]}: {name}"] = found
            metrics |= {f"{part}/{KEYS.get(name, '')}{metric}": value for metric, value in found.items()}
    tables = [_table(rows, title=title, dataset=dataset, num_pairs=len(examples) // 2)]
    if num_examples:
        tables.append(_examples_table(choose_examples(examples, predictions, num_examples), predictions))
    report = Report(metrics=metrics, tables=tuple(tables), notes=(*notes, *scored.notes))
    if origin is None:
        return report

    def score(marked: Rows) -> Mapping[str, Metric]:
        whole = np.repeat(marked.reshape(-1, 2).all(axis=1), 2)  # pairs of which neither row was seen
        if not whole.any():
            return {}
        return comparison_metrics(*select(examples, predictions, whole), num_resamples=num_resamples).metrics

    return with_provenance(report, origin, score, title=title, shown=tuple(SHOWN))


def _parts(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """Divides the rows of a dataset that has several parts."""
    first_fields = {source: fields[:1] for source, fields in PARTS.items()}
    found = {f"{field}/{value}": rows for field, value, rows in divide(examples, first_fields)}
    return found if len(found) > 1 else {}


def _table(rows: Mapping[str, Mapping[str, Metric]], *, title: str, dataset: str, num_pairs: int) -> Table:
    heads = [head for head, _ in SHOWN.values()]
    table = figures_table(f"{title}: which of two replies is hallucinated, percent", "judge", heads, min_width=20)
    for name, metrics in rows.items():
        cells = [percent(metrics[metric], bounds=metric == "accuracy") for metric in SHOWN]
        table.add_row(Text(harmless(name), style="bold" if name.endswith(MODEL) else ""), *cells)
    lines = [f"{num_pairs:,} pairs, each in both orders; 95% intervals over groups", CAPTION]
    if dataset == "halludial":
        published = published_table("halludial_comparative")
        table.add_section()
        for row in sorted(published.rows, key=lambda row: -row["mean"])[:NUM_PUBLISHED]:
            table.add_row(f"{row['system']} *", *(figure(row.get(column)) for _, column in SHOWN.values()))
        lines.append(f"* the best of {published.citation}: {published.protocol}")
    combined = rows[MODEL].get("combined_accuracy")
    if combined is not None:
        lines.append(f"by the probabilities of both orders together, whatever the bias: {percent(combined)}")
    table.caption = Text("\n".join(lines))
    return table


def _examples_table(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Table:
    table = fields_table("answers to judge")
    for example in examples:
        said = predictions[example.id]
        table.add_row("id", Text(harmless(example.id, 400)))
        add_context(table, example)
        table.add_row("reply 1", Text(harmless(example.response, 400)))
        table.add_row("reply 2", Text(harmless(str(example.meta[OTHER]), 400)))
        if said.text:
            table.add_row("said", Text(harmless(said.text, 400)))
        score = "-" if said.score is None else f"{said.score:.2f}"
        gold = f"reply {1 if example.meta[ORDER] == 'first' else 2} is hallucinated, P(reply 1) {score}: "
        table.add_row("verdict", Text(f"{gold}{outcome_of(example, said)}"), end_section=True)
    return table
