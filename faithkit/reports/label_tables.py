"""Reports of labelled test sets: classification metrics with fitted baselines, by part of the data, and by column.

HalluDial is divided by scenario, HaluEval by task, DiaHalu by domain, generator and type, everyday answers by style and
error. Baselines are fitted in each part: the length that separates answers to questions does not separate summaries.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from rich.table import Table

from faithkit.baselines.simple_detectors import Baseline, BaselineData, predict_baselines
from faithkit.metrics.classification import (
    NOT_SHOWN,
    TOO_MANY_UNPARSED,
    Outcomes,
    classification_metrics,
    evaluate_labels,
    join_outcomes,
    measure_slices,
)
from faithkit.pages.page_tables import (
    bold,
    choose_examples,
    escape_terminal,
    format_percent,
    predictions_table,
)
from faithkit.published.figures import ALL, MEAN_OF_CLASSES, judge_figures
from faithkit.records import AXES, Example, Prediction, span_type
from faithkit.reports.report import (
    Report,
    Row,
    build_sample,
    difference_cells,
    metrics_table,
    part_rows,
    published_cells,
    score_table,
)
from faithkit.scores.board import Board
from faithkit.scores.measures import titles_of
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric

# The fields of `meta` that divide a dataset, the paper's first; and the type that only hallucinated examples have, with
# what it means on the axes.
PARTS = {
    "halludial": ("scenario",),
    "halueval": ("task",),
    "diahalu": ("domain", "model"),
    "everyday": ("style",),
    "agents": ("setting",),
}
TYPES = {"diahalu": ("type", *AXES), "everyday": ("error", *AXES), "agents": ("fault", *AXES)}
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
MAX_NAME = 17  # characters of a system's name: a wide interval is wrapped rather than the name
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
        if len(by_value) > 1 or field in AXES or any(names[0] == field for names in fields.values()):
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
    """Computes the metrics of each system in each part (`domain/task`); none if the dataset has no parts.

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
    typed = []  # with the relation and the element of their types
    for example in examples:
        field, *_ = TYPES.get(example.source, ("type",))
        label = str(example.meta.get(field, ""))
        typed.append(replace(example, meta={**example.meta, **span_type(example.source, label)}))
    if types := divide(typed, TYPES):
        systems = {MODEL: predictions} | {one.name: one.predictions for one in predict_baselines(examples, data)}
        for field, value, rows in types:
            found = score(rows, systems)
            scored[f"{field}/{value}"] = {name: {"recall": each["recall"]} for name, each in found.items()}
    return scored


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
            recalls = {
                value: {name: one["recall"] for name, one in systems.items()} for value, systems in named.items()
            }
            rows: Iterable[Row] = [(value, {"n": found[MODEL].n, **found}) for value, found in recalls.items()]
            longest = max((len(word) for value in named for word in value.split()), default=0)
            width, heads = min(longest, MAX_NAME), ["n", *next(iter(named.values()))]  # a type's words are not broken
            head = f"{title}, recall by {field}, percent"
            tables.append(score_table(head, "type", heads, rows, bounds=[MODEL], min_width=width, no_wrap=["n"]))
            continue
        if len(named) > 1:
            named = {ALL: {MODEL: dict(whole)}, **named}
        columns = OF_BOTH_CLASSES if source in MEAN_OF_CLASSES else COLUMNS
        names = {name: name for name in columns}
        # Each paper divides the data in one way. Three systems of a part are shown; faithkit/published has all.
        figures = {part: judge_figures("" if tables else dataset, part)[:3] for part in named}
        published = {
            part: [(f"{row.system} *", published_cells(asdict(row), names)) for row in each]
            for part, each in figures.items()
        }
        lines = ["baselines fitted to each part by itself"]
        if columns is OF_BOTH_CLASSES:
            lines.append("F1 f.: of the faithful; P, R: means over both classes")
        unparsed = {part: systems[MODEL]["unparsed_rate"].value for part, systems in named.items()}
        if any(unparsed.values()):
            rates = ", ".join(f"{escape_terminal(part)} {rate:.1%}" for part, rate in unparsed.items())
            lines.append(f"unparsed: {rates}")
        notes = dict.fromkeys(row.note for each in figures.values() for row in each)
        lines += [f"* the best of {note}" for note in notes]
        rows, head = part_rows(named, HEADLINE, published), f"{title} by {field}, percent"
        tables.append(score_table(head, field, columns, rows, bounds=[HEADLINE], caption=lines, min_width=MAX_NAME))
    return tables


SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # all others are in metrics.json
HEADLINE = "macro_f1"
Compared = tuple[Baseline, dict[str, Metric], dict[str, Difference]]  # its metrics, and the model's minus its
COLUMN_METRICS = ("macro_f1", "predicted_rate", "gold_rate", "accuracy")


def label_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    baseline_data: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Report:
    """Computes classification metrics of the model and of baselines (`overlap_macro_f1`), and their differences.

    Differences are `difference/overlap_macro_f1` with the p-value `p_value/overlap_macro_f1`, on the same resamples of
    groups. Some datasets are also scored by part (`domain/task/macro_f1`).

    Args:
        dataset: The benchmark's name, to show its published figures.
    """
    outcomes = join_outcomes(examples, predictions)
    data = baseline_data or BaselineData()
    baselines = predict_baselines(examples, data, predictions)
    refitted = next((baseline for baseline in baselines if baseline.threshold is not None), None)
    board = Board(title, num_resamples=num_resamples)
    board.add(MODEL, evaluate_labels(outcomes), title="the model")
    for one in baselines:
        called = outcomes.with_predictions(one.predictions[example.id] for example in examples)
        shown = "the model with the fitted threshold" if one is refitted else one.name
        board.add(one.key, evaluate_labels(called), title=shown, is_baseline=one is not refitted)
    model = board.metrics(MODEL)
    metrics, compared = dict(model), []
    for one in baselines:
        of_baseline = board.metrics(one.key)
        found = {name: of_baseline[name] for name in (HEADLINE, "f1", "accuracy", "auroc") if name in of_baseline}
        differences = board.subtract(MODEL, one.key, list(found))
        compared.append((one, found, differences))
        metrics = {f"{one.key}_{name}": metric for name, metric in found.items()} | metrics
        for name, difference in differences.items():
            metrics |= difference.to_metrics(f"{one.key}_{name}")
    parts = part_metrics(examples, outcomes, predictions, baseline_data=data, num_resamples=num_resamples)
    keys = {MODEL: "", **{baseline.name: f"{baseline.key}_" for baseline in baselines}}
    metrics |= {
        f"{part}/{keys[system]}{name}": metric
        for part, systems in parts.items()
        for system, scored in systems.items()
        for name, metric in scored.items()
        if system == MODEL or name in (*COLUMNS, "accuracy", "auroc")
    }
    # Three columns fit 80 characters: the model, the more frequent class and word overlap; the others are below.
    columns = {"model": {name: metric for name, metric in model.items() if name in SHOWN}}
    columns |= {baseline.name: found for baseline, found, _ in compared[:2]}
    tables = [metrics_table(columns, title=title)]
    tables += part_tables(parts, whole=model, title=title, dataset=dataset, source=examples[0].source)
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    samples = [build_sample(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    notes, facts = board.notes(MODEL), {}
    if refitted is not None:
        use = f"to use it: faithkit score ... threshold={refitted.threshold:.4f}"
        notes = (*notes, f"threshold fitted on {escape_terminal(refitted.fitted_on)}; {use}")
        facts = {"threshold": refitted.threshold}
    # Thresholds of other datasets decide macro-F1 too, so the model must then be better whatever the threshold is.
    decisive = {HEADLINE: "macro-F1"} | ({} if data.fits_tested else {"auroc": "AUROC, without a threshold,"})
    is_read = model["unparsed_rate"].value <= TOO_MANY_UNPARSED
    return Report(
        metrics=metrics,
        conclusion=board.conclude(refitted.key if refitted else MODEL, decisive) if is_read else None,
        headline=(_headline_table(model, compared, title=title, is_read=is_read),),
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        facts=facts,
        rescore=lambda rows: classification_metrics(outcomes.select(rows), num_resamples=num_resamples).metrics,
        shown=SHOWN,
    )


def _headline_table(model: Mapping[str, Metric], compared: Sequence[Compared], *, title: str, is_read: bool) -> Table:
    """Shows the macro-F1 of the model and its baselines, and the differences; five columns fit 80 characters."""
    rows: list[Row] = [(bold("model"), {**(model if is_read else {}), "difference": "", "p": ""})]
    for baseline, found, differences in compared:
        rows.append((baseline.name, {**found, **difference_cells(differences[HEADLINE] if is_read else None)}))
    heads = {"f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy", "ece": "ECE"}
    others = [f"{head} {format_percent(model[name], bounds=False)}" for name, head in heads.items() if name in model]
    lines = [f"model: {', '.join(others) if is_read else NOT_SHOWN}"]
    lines.append(f"n = {model[HEADLINE].n:,}; 95% intervals over groups, differences paired")
    fitted: dict[str, list[str]] = {}
    for baseline, _, _ in compared:
        if baseline.key in ("overlap", "length", "counted"):  # those with a threshold
            fitted.setdefault(baseline.fitted_on, []).append(baseline.name)
    lines += (f"threshold of {', '.join(names)}: chosen on {escape_terminal(on)}" for on, names in fitted.items())
    columns = {HEADLINE: "macro-F1", "auroc": "AUROC", "difference": "model - baseline", "p": "p"}
    return score_table(
        f"{title}, percent",
        "system",
        columns,
        rows,
        bounds=[HEADLINE, "difference"],
        caption=lines,
        no_wrap=["AUROC", "p"],
    )


def columns_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    columns: Sequence[str],
    *,
    title: str,
    num_resamples: int = 1000,
) -> Report:
    """Computes `by/COLUMN/VALUE/macro_f1` and so on, for the most frequent values and the others together.

    Args:
        columns: Fields of the examples' `meta`, such as a language, a customer or a version.
    """
    fields: dict[str, list[str]] = {}
    for column in columns:
        values = [str(one.meta[column]) or "(empty)" for one in examples]
        counts = Counter(values)
        if len(counts) > 21:  # a column of free text has thousands; a single other value keeps its name
            kept = {value for value, _ in counts.most_common(20)}
            rest = f"the other {len(counts) - len(kept):,} values"
            values = [value if value in kept else rest for value in values]
        fields[column] = values
    outcomes = join_outcomes(examples, {example.id: predictions[example.id] for example in examples})
    found = measure_slices(outcomes, fields, COLUMN_METRICS, num_resamples=num_resamples)
    metrics = {
        f"by/{column}/{value}/{name}": metric
        for (column, value), scored in found.items()
        for name, metric in scored.items()
    }
    tables = []
    for column, values in fields.items():
        counts = Counter(values)
        others = {value for value in counts if value.startswith("the other ") and value.endswith(" values")}
        rows: list[Row] = []
        for value in sorted(counts, key=lambda value: (value in others, -counts[value], value)):
            rows.append((escape_terminal(value, 60), {"rows": counts[value], **found[column, value]}))
        lines = ["called, labelled: the hallucinated share by the model and by the labels"]
        lines.append("95% intervals over groups; a value of one label alone has no macro-F1")
        table = score_table(
            f"{title} by {column}, percent",
            column,
            {"rows": "rows", **titles_of(COLUMN_METRICS[:3])},
            rows,
            bounds=COLUMN_METRICS[:2],
            caption=lines,
            no_wrap=["rows"],
            min_width=12,
        )
        tables.append(table)
    by = {
        column: {example.id: value for example, value in zip(examples, values, strict=True)}
        for column, values in fields.items()
    }
    return Report(metrics=metrics, headline=tuple(tables), by=by)
