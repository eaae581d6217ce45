"""A test set by its parts: HalluDial by scenario, HaluEval by task, DiaHalu by domain, generator and type.

Each part has its own baselines: a length that tells answers to questions apart says little of summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import BaselineData, predict_baselines
from faithkit.metrics.classification import classification_metrics
from faithkit.pages.tables import escape_terminal, format_percent, format_published, new_number_table
from faithkit.published.figures import ALL, MEAN_OF_CLASSES, judge_figures
from faithkit.records import Example, Prediction
from faithkit.statistics.metric import Metric

# The fields of `meta` that part a dataset's examples, the paper's first; and those that only hallucinated ones have.
PARTS = {"halludial": ("scenario",), "halueval": ("task",), "diahalu": ("domain", "model")}
TYPES = {"diahalu": "type"}
# By metric: the head of its column. Papers of dialogue judges give means over both classes, others those of one.
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
NAMES = 17  # characters for a system: a wide interval goes on in another line rather than its name
OF_BASELINE = (*COLUMNS, "accuracy", "auroc")
MAX_PUBLISHED = 3  # systems of a part; all of them stand in faithkit/published
MODEL = "model"
Systems = dict[str, dict[str, Metric]]  # metrics by system, the model first


def divide(examples: Sequence[Example], fields: Mapping[str, Sequence[str]]) -> list[tuple[str, str, list[Example]]]:
    """Divides examples by each field of `meta`: field, value, examples; a second field of one value divides nothing.

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
    predictions: Mapping[str, Prediction],
    *,
    fitting: BaselineData | None = None,
    num_resamples: int = 1000,
) -> dict[str, Systems]:
    """Computes the systems' metrics in each part, by `domain/task` and the like; none where the dataset has no parts.

    A type has recall alone: only hallucinated examples are of one.
    """
    # Trees and a second threshold would be fitted anew for each part.
    plain = replace(fitting or BaselineData(), learn=False, counted=None, own={})
    found: dict[str, Systems] = {}
    for field, value, rows in divide(examples, PARTS):
        said = {example.id: predictions[example.id] for example in rows}
        systems = {MODEL: said} | {one.name: one.predictions for one in predict_baselines(rows, said, plain)}
        found[f"{field}/{value}"] = {
            name: classification_metrics(rows, each, num_resamples=num_resamples).metrics
            for name, each in systems.items()
        }
    return found | _by_type(examples, predictions, plain, num_resamples)


def _by_type(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], fitting: BaselineData, num_resamples: int
) -> dict[str, Systems]:
    parts = [part for part in divide(examples, {k: (v,) for k, v in TYPES.items()}) if part[2]]
    if not parts:
        return {}
    systems = {MODEL: predictions} | {
        one.name: one.predictions for one in predict_baselines(examples, predictions, fitting)
    }
    found: dict[str, Systems] = {}
    for field, value, rows in parts:
        scored = {
            name: classification_metrics(rows, {e.id: each[e.id] for e in rows}, num_resamples=num_resamples).metrics
            for name, each in systems.items()
        }
        found[f"{field}/{value}"] = {name: {"recall": metrics["recall"]} for name, metrics in scored.items()}
    return found


def flatten_parts(parts: Mapping[str, Systems], keys: Mapping[str, str]) -> dict[str, Metric]:
    """Names all metrics: `task/qa/macro_f1`, and `task/qa/length_macro_f1` of a baseline.

    Args:
        keys: How a baseline's metrics begin, by its name.
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
    """Makes a table for each field, with the whole before its parts and published figures under ours.

    Args:
        whole: The model's metrics on all rows.
        source: The dataset of the rows, whose paper decides which columns there are.
        dataset: Whose published figures stand beside; empty for none.
    """
    fields = dict.fromkeys(part.partition("/")[0] for part in parts)
    tables = []
    for field in fields:
        named = {part.partition("/")[2]: systems for part, systems in parts.items() if part.startswith(f"{field}/")}
        if field in TYPES.values():
            tables.append(_types_table(named, title=f"{title}, recall by {field}, percent"))
        else:
            beside_ours = "" if tables else dataset  # the papers part the data in one way each
            every = {ALL: {MODEL: dict(whole)}} if len(named) > 1 else {}
            columns = OF_BOTH_CLASSES if source in MEAN_OF_CLASSES else COLUMNS
            tables.append(_table(field, every | named, columns, title=title, dataset=beside_ours))
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
            table.add_row(Text(f"  {row.system} *"), *(format_published(getattr(row, name, None)) for name in columns))
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
    names = min(longest, NAMES)  # a word of a type's name is not broken
    table = new_number_table(title, "type", ["n", *next(iter(parts.values()))], min_width=names, no_wrap=["n"])
    for value, scored in parts.items():
        cells = [format_percent(metrics["recall"], bounds=name == MODEL) for name, metrics in scored.items()]
        table.add_row(Text(escape_terminal(value)), f"{scored[MODEL]['recall'].n:,}", *cells)
    return table
