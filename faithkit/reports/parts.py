"""Metrics by part of a test set: HalluDial by scenario, HaluEval by task, DiaHalu by domain, generator and type.

Baselines are fitted in each part: the length that separates answers to questions does not separate summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import BaselineData, predict_baselines
from faithkit.metrics.classification import classification_metrics
from faithkit.metrics.outcomes import Outcomes
from faithkit.pages.page_tables import escape_terminal, format_percent, format_published, new_number_table
from faithkit.published.figures import ALL, MEAN_OF_CLASSES, judge_figures
from faithkit.records import Example, Prediction
from faithkit.statistics.metric import Metric

# The fields of `meta` that divide a dataset, the paper's first; and those that only hallucinated examples have.
PARTS = {"halludial": ("scenario",), "halueval": ("task",), "diahalu": ("domain", "model")}
TYPES = {"diahalu": ("type",)}
# Column heads by metric. Papers of dialogue judges give means over both classes, others those of one.
COLUMNS = {"macro_f1": "macro-F1", "f1": "F1", "precision": "precision", "recall": "recall"}
OF_BOTH_CLASSES = {
    "macro_f1": "macro-F1",
    "f1": "F1",
    "faithful_f1": "F1 f.",
    "accuracy": "acc.",
    "mean_precision": "P",
    "mean_recall": "R",
}
HEADS = "F1 f.: of the faithful; P, R: means over both classes"
HEADLINE = "macro_f1"
NAMES = 17  # characters of a system's name: a wide interval is wrapped rather than the name
OF_BASELINE = (*COLUMNS, "accuracy", "auroc")
MAX_PUBLISHED = 3  # systems of a part; faithkit/published has all
MODEL = "model"
Systems = dict[str, dict[str, Metric]]  # metrics by system, the model first


def divide(examples: Sequence[Example], fields: Mapping[str, Sequence[str]]) -> list[tuple[str, str, list[Example]]]:
    """Divides examples by fields of `meta` into (field, value, examples); a second field with one value is skipped.

    Args:
        fields: By dataset, as in `PARTS`.
    """
    found = []
    for field in dict.fromkeys(name for example in examples for name in fields.get(example.source, ())):
        by_value: dict[str, list[Example]] = {}
        for example in examples:
            if example.meta.get(field) is not None:
                by_value.setdefault(str(example.meta[field]), []).append(example)
        if len(by_value) > 1 or any(names[0] == field for names in fields.values()):
            found += [(field, value, rows) for value, rows in sorted(by_value.items())]
    return found


def part_metrics(
    examples: Sequence[Example],
    outcomes: Outcomes,
    predictions: Mapping[str, Prediction],
    *,
    baseline_data: BaselineData,
    num_resamples: int = 1000,
) -> dict[str, Systems]:
    """Computes the metrics of each system in each part (`domain/task`); none where the dataset has no parts.

    Types have recall alone, because only hallucinated examples have one, and baselines that were fitted on all rows.
    """
    # Trees and a second threshold would have to be fitted for each part.
    data = replace(baseline_data, learn=False, counted=None, model_predictions={})

    def score(rows: Sequence[Example], systems: Mapping[str, Mapping[str, Prediction]]) -> Systems:
        ids = {example.id for example in rows}
        part = outcomes.select(np.array([example.id in ids for example in examples]))
        return {
            name: classification_metrics(
                part.with_predictions(found[example.id] for example in rows), num_resamples=num_resamples
            ).metrics
            for name, found in systems.items()
        }

    scored: dict[str, Systems] = {}
    for field, value, rows in divide(examples, PARTS):
        baselines = {one.name: one.predictions for one in predict_baselines(rows, data)}
        scored[f"{field}/{value}"] = score(rows, {MODEL: predictions, **baselines})
    if types := divide(examples, TYPES):
        systems = {MODEL: predictions} | {one.name: one.predictions for one in predict_baselines(examples, data)}
        for field, value, rows in types:
            found = score(rows, systems)
            scored[f"{field}/{value}"] = {name: {"recall": each["recall"]} for name, each in found.items()}
    return scored


def flatten_parts(parts: Mapping[str, Systems], keys: Mapping[str, str]) -> dict[str, Metric]:
    """Names all metrics: `task/qa/macro_f1`, and `task/qa/length_macro_f1` of a baseline.

    Args:
        keys: The beginning of a baseline's metrics, by its name.
    """
    metrics = {}
    for part, systems in parts.items():
        for system, scored in systems.items():
            for name, metric in scored.items():
                if system == MODEL:
                    metrics[f"{part}/{name}"] = metric
                elif name in OF_BASELINE:
                    metrics[f"{part}/{keys[system]}_{name}"] = metric
    return metrics


def part_tables(
    parts: Mapping[str, Systems], *, whole: Mapping[str, Metric], title: str, dataset: str, source: str = ""
) -> list[Table]:
    """Builds a table for each field: the whole, then its parts, with published figures below ours.

    Args:
        whole: The model's metrics on all rows.
        source: The dataset of the rows; its paper determines the columns.
        dataset: The dataset to show published figures of; empty for none.
    """
    tables: list[Table] = []
    for field in dict.fromkeys(part.partition("/")[0] for part in parts):
        named = {part.partition("/")[2]: systems for part, systems in parts.items() if part.startswith(f"{field}/")}
        if any(field in names for names in TYPES.values()):
            tables.append(_types_table(named, title=f"{title}, recall by {field}, percent"))
        else:
            published = "" if tables else dataset  # each paper divides the data in one way
            every = {ALL: {MODEL: dict(whole)}} if len(named) > 1 else {}
            columns = OF_BOTH_CLASSES if source in MEAN_OF_CLASSES else COLUMNS
            tables.append(_table(field, every | named, columns, title=title, dataset=published))
    return tables


def _table(field: str, parts: Mapping[str, Systems], columns: Mapping[str, str], *, title: str, dataset: str) -> Table:
    table = new_number_table(f"{title} by {field}, percent", field, columns.values(), min_width=NAMES)
    cited: dict[str, None] = {}
    for part, systems in parts.items():
        table.add_row(Text.assemble((escape_terminal(part), "bold"), f", n = {systems[MODEL]['macro_f1'].n:,}"))
        for system, metrics in systems.items():
            cells = [format_percent(metrics.get(name), bounds=name == HEADLINE) for name in columns]
            table.add_row(Text(f"  {escape_terminal(system)}"), *cells)
        for row in judge_figures(dataset, part)[:MAX_PUBLISHED]:
            cells = [format_published(getattr(row, name, None)) for name in columns]
            table.add_row(Text(f"  {row.system} *"), *cells)
            cited[row.note] = None
        table.add_section()
    unparsed = {part: systems[MODEL]["unparsed_rate"].value for part, systems in parts.items()}
    lines = ["baselines fitted to each part by itself"] + [HEADS] * (columns is OF_BOTH_CLASSES)
    if any(unparsed.values()):
        lines.append(f"unparsed: {', '.join(f'{escape_terminal(part)} {rate:.1%}' for part, rate in unparsed.items())}")
    lines += [f"* the best of {note}" for note in cited]
    table.caption = Text("\n".join(lines))
    return table


def _types_table(parts: Mapping[str, Systems], *, title: str) -> Table:
    longest = max((len(word) for value in parts for word in value.split()), default=0)
    width = min(longest, NAMES)  # words of a type's name are not broken
    table = new_number_table(title, "type", ["n", *next(iter(parts.values()))], min_width=width, no_wrap=["n"])
    for value, scored in parts.items():
        cells = [format_percent(metrics["recall"], bounds=name == MODEL) for name, metrics in scored.items()]
        table.add_row(Text(escape_terminal(value)), f"{scored[MODEL]['recall'].n:,}", *cells)
    return table
