"""Measures how far annotators agree on labels, ratings and spans, and whether human scores of systems differ."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from construction.agreement.measures import measure, pair_kappas
from construction.agreement.ratings import (
    NOMINAL,
    ORDINAL,
    SPANS,
    Answered,
    labels_of,
    questions_of,
    ratings_of,
    read_answers,
)
from construction.agreement.significance import Compared, columns_of, compare_column
from construction.agreement.spans import marked_items, measure_spans
from faithkit.evaluation.intervals import Metric, Scored
from faithkit.evaluation.results import full_names, write_results
from faithkit.evaluation.tables import format_metric, harmless, new_table, show
from faithkit.files.run_folder import RunFolder
from workflows.pipelines.annotate import ANNOTATIONS

OF_LABELS = {"agreement": "observed", "cohen_kappa": "Cohen", "fleiss_kappa": "Fleiss", "randolph_kappa": "Randolph"}
OF_LABELS |= {"alpha": "alpha", "alpha_ordinal": "alpha, ordinal"}
OF_SPANS = {"char_f1": "char F1", "typed_char_f1": "typed F1", "char_alpha": "char alpha", "span_gamma": "span gamma"}
log = logging.getLogger("faithkit")


def run_agreement(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Measures agreement, shows it and writes metrics.json."""
    block = config["pipeline"]
    path = annotations_file(block["annotations"])
    answered = read_answers(path)
    kinds = questions_of(answered, str(path))
    if config["dry_run"]:
        log.info("%s: %s", path, ", ".join(f"{name} ({kind})" for name, kind in kinds.items()))
        return
    num_resamples = block["num_resamples"]
    measured: dict[str, Scored] = {}
    pairs: dict[str, dict[str, float]] = {}
    for name, kind in kinds.items():
        if kind == SPANS:
            measured |= _spans(answered, name, str(path), num_resamples)
            continue
        ratings = ratings_of(answered, name, kind)
        measured[name] = measure(ratings, ordinal=kind == ORDINAL, num_resamples=num_resamples)
        pairs[name] = pair_kappas(ratings)
        for label, of_label in labels_of(answered, name).items() if kind == NOMINAL else ():
            measured[f"{name}/{label}"] = measure(of_label, num_resamples=num_resamples)
    compared = _compare(answered, kinds, num_resamples)
    metrics = {f"{name}/{one}": metric for name, scored in measured.items() for one, metric in scored.metrics.items()}
    metrics |= {f"{row.column}/{row.system}/mean": row.mean for row in compared}
    dataset = block["title"] or path.parent.name
    meta = {
        "annotations": str(path),
        "annotators": sorted({one.annotator for one in answered}),
        "items": len({one.item for one in answered}),
        "items_by_annotators": dict(sorted(Counter(Counter(one.item for one in answered).values()).items())),
        "cohen_kappa_of_pairs": pairs,
        "notes": {name: list(scored.notes) for name, scored in measured.items() if scored.notes},
        "compared": [_row_of(row) for row in compared],
    }
    write_results(run.metrics, full_names("test", dataset, metrics), meta)
    labels = {name: scored for name, scored in measured.items() if kinds[name.partition("/")[0]] != SPANS}
    spans = {name: scored for name, scored in measured.items() if name not in labels}
    tables = [_table("agreement on labels and ratings", labels, OF_LABELS)] if labels else []
    tables += [_table("agreement on spans", spans, OF_SPANS)] if spans else []
    tables += [_systems_table(compared)] if compared else []
    show(*tables)
    for name, values in pairs.items():
        if len(values) > 1:
            low, high = min(values.values()), max(values.values())
            log.info("%s: Cohen's kappa of %d pairs of annotators from %.2f to %.2f", name, len(values), low, high)
    for note in dict.fromkeys(note for name in kinds for note in measured[name].notes):
        log.info("note: %s", note)


def annotations_file(given: str) -> Path:
    """The file of answers: itself, or that of a run of pipeline=annotate."""
    path = Path(given).expanduser()
    return path / ANNOTATIONS if path.is_dir() else path


def _spans(answered: Sequence[Answered], question: str, place: str, num_resamples: int) -> dict[str, Scored]:
    items = marked_items(answered, question, place)
    labels = sorted({label for item in items for spans in item.spans.values() for _, _, label in spans})
    found = {question: measure_spans(items, num_resamples=num_resamples)}
    for label in labels:
        found[f"{question}/{label}"] = measure_spans([item.only(label) for item in items], num_resamples=num_resamples)
    return found


def _compare(answered: Sequence[Answered], kinds: Mapping[str, str], num_resamples: int) -> list[Compared]:
    """Each system against the best of each column, where several systems were judged."""
    if len({one.system for one in answered}) < 2 or any(one.system is None for one in answered):
        return []
    groups = {one.context: one.group for one in answered}
    columns = columns_of(answered, kinds)
    return [
        row for name, of in columns.items() for row in compare_column(name, of, groups, num_resamples=num_resamples)
    ]


def _row_of(row: Compared) -> dict[str, Any]:
    found: dict[str, Any] = {"column": row.column, "system": row.system, "mean": row.mean.to_dict()}
    if row.difference is not None:
        one = row.difference
        found["to_best"] = {"value": one.value, "low": one.low, "high": one.high, "p": one.p_value, "n": one.n}
        if row.p_wilcoxon == row.p_wilcoxon:
            found["to_best"] |= {"p_wilcoxon": row.p_wilcoxon, "p_holm": row.p_holm}
    return found


def _table(title: str, measured: Mapping[str, Scored], columns: Mapping[str, str]) -> Table:
    shown = [name for name in columns if any(name in scored.metrics for scored in measured.values())]
    table = new_table(title)
    table.add_column(Text("question"), overflow="fold")
    for name in shown:
        table.add_column(Text(columns[name]), justify="right")
    table.add_column(Text("n"), justify="right")
    for name, scored in measured.items():
        found: list[Metric | None] = [scored.metrics.get(column) for column in shown]
        sizes = [metric.n for metric in found if metric is not None and metric.n is not None]
        table.add_row(Text(harmless(name)), *map(format_metric, found), f"{max(sizes, default=0):,}")
    return table


def _systems_table(compared: Sequence[Compared]) -> Table:
    """Rows are systems and columns scores, as in the paper."""
    columns = list(dict.fromkeys(row.column for row in compared))
    table = new_table("scores by system")
    table.add_column(Text("system"), overflow="fold")
    for column in columns:
        table.add_column(Text(harmless(column)), justify="right", overflow="fold")
    for system in dict.fromkeys(row.system for row in compared):
        rows = {row.column: row for row in compared if row.system == system}
        cells = (f"{rows[name].mean.value:.2f}{rows[name].stars}" if name in rows else "-" for name in columns)
        table.add_row(Text(harmless(system)), *map(Text, cells))
    table.caption = Text(
        "*, **: differs from the best of its column with p < 0.05, 0.01 (Wilcoxon's signed ranks, Holm)"
    )
    return table
