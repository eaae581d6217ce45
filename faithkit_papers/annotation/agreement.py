"""Measures how far annotators agree on labels, ratings and spans, and whether human scores of systems differ."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import full_names, write_results
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table, print_tables
from faithkit.statistics.bootstrap import ScoredMetrics
from faithkit_papers.annotation.annotate import PROJECT
from faithkit_papers.annotation.annotation_questions import CHOICES
from faithkit_papers.annotation.answers import (
    NOMINAL,
    ORDINAL,
    SPANS,
    labels_of,
    questions_of,
    ratings_of,
    read_answers,
)
from faithkit_papers.annotation.measures import evaluate_spans, marked_items, measure, pair_kappas
from faithkit_papers.annotation.project import read_rows
from faithkit_papers.annotation.significance import Compared, columns_of, compare_column, measure_shares
from faithkit_workflows.settings.construction import annotations_file

OF_LABELS = {
    "agreement": "observed",
    "cohen_kappa": "Cohen's kappa",
    "fleiss_kappa": "Fleiss' kappa",
    "randolph_kappa": "Randolph's kappa",
    "alpha": "Krippendorff's alpha",
    "alpha_ordinal": "alpha, ordinal",
}
OF_SPANS = {"char_f1": "F1 of characters", "typed_char_f1": "F1 with types", "char_alpha": "alpha of characters"}
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
    measured: dict[str, ScoredMetrics] = {}
    pairs: dict[str, dict[str, float]] = {}
    for name, kind in kinds.items():
        if kind == SPANS:
            items = marked_items(answered, name, str(path))
            measured[name] = evaluate_spans(items, num_resamples=num_resamples)
            for label in sorted({label for item in items for spans in item.spans.values() for _, _, label in spans}):
                of_label = [item.only(label) for item in items]
                measured[f"{name}/{label}"] = evaluate_spans(of_label, num_resamples=num_resamples)
            continue
        ratings = ratings_of(answered, name, kind)
        measured[name] = measure(ratings, ordinal=kind == ORDINAL, num_resamples=num_resamples)
        pairs[name] = pair_kappas(ratings)
        labels = labels_of(answered, name) if kind == NOMINAL else {}
        for label, chosen in labels.items() if len(labels) > 2 else ():  # two labels are complements
            measured[f"{name}/{label}"] = measure(chosen, num_resamples=num_resamples)
    project, scheme_labels = path.parent / PROJECT, dict[str, Mapping[str, str]]()
    if project.is_dir():  # else the answers are from elsewhere
        scheme, _ = read_rows(project)
        scheme_labels = {question.name: question.labels for question in scheme.questions if question.kind == CHOICES}
    compared: list[Compared] = []
    if len({one.system is None for one in answered}) == 1:  # else the systems cannot be compared
        groups = {one.context: one.group for one in answered}
        for name, of in columns_of(answered, kinds, scheme_labels).items():
            compared += compare_column(name, of, groups, num_resamples=num_resamples)
    compared_rows: list[dict[str, Any]] = []
    for row in compared:
        found: dict[str, Any] = {"column": row.column, "system": row.system, "mean": row.mean.to_dict()}
        if (to_best := row.difference) is not None:
            found["to_best"] = {name: getattr(to_best, name) for name in ("value", "low", "high")}
            found["to_best"] |= {"p": to_best.p_value, "n": to_best.n}
            if row.p_wilcoxon == row.p_wilcoxon:
                found["to_best"] |= {"p_wilcoxon": row.p_wilcoxon, "p_holm": row.p_holm, "stars": row.stars}
        compared_rows += [found] if row.system else []
    metrics = {f"{name}/{one}": metric for name, scored in measured.items() for one, metric in scored.metrics.items()}
    metrics |= {f"{row.column}/{f'{row.system}/' if row.system else ''}mean": row.mean for row in compared}
    metrics |= measure_shares(answered, kinds, scheme_labels, num_resamples=num_resamples)
    dataset = block["title"] or path.parent.name
    meta = {
        "annotations": str(path),
        "annotators": sorted({one.annotator for one in answered}),
        "items": len({one.item for one in answered}),
        "items_by_annotators": dict(sorted(Counter(Counter(one.item for one in answered).values()).items())),
        "cohen_kappa_of_pairs": pairs,
        "notes": {name: list(scored.notes) for name, scored in measured.items() if scored.notes},
        "compared": compared_rows,
    }
    write_results(run.metrics, full_names("test", dataset, metrics), meta)
    spans = {name: scored for name, scored in measured.items() if kinds[name.partition("/")[0]] == SPANS}
    others = {name: scored for name, scored in measured.items() if name not in spans}
    tables = [_table("agreement on labels and ratings", others, OF_LABELS, "alpha")] if others else []
    tables += [_table("agreement on spans", spans, OF_SPANS, "char_f1")] if spans else []
    tables += [_systems_table(compared)] if len({row.system for row in compared}) > 1 else []
    print_tables(*tables)
    for name, values in pairs.items():
        if len(values) > 1:
            low, high = min(values.values()), max(values.values())
            log.info("%s: Cohen's kappa of %d pairs of annotators from %.2f to %.2f", name, len(values), low, high)
    for note in dict.fromkeys(note for name in kinds for note in measured[name].notes):
        log.info("note: %s", note)


def _table(title: str, measured: Mapping[str, ScoredMetrics], columns: Mapping[str, str], of_label: str) -> Table:
    """Makes the table of all measures of each question and one of each of its labels; metrics.json has all."""
    table = new_number_table(title, ("question", "measure"), ("agreement", "n"), show_edge=True)
    for name, scored in measured.items():
        question, _, label = name.partition("/")
        shown = [one for one in columns if one in scored.metrics and (not label or one == of_label)]
        for place, one in enumerate(shown):
            metric = scored.metrics[one]
            head = "" if place else f"  {escape_terminal(label)}" if label else escape_terminal(question)
            table.add_row(Text(head), Text(columns[one]), format_metric(metric), f"{metric.n:,}")
    return table


def _systems_table(compared: Sequence[Compared]) -> Table:
    """Makes a table with systems as rows and scores as columns, as in the paper."""
    columns = list(dict.fromkeys(row.column for row in compared))
    table = new_number_table("scores by system", "system", columns, show_edge=True)
    for system in dict.fromkeys(row.system for row in compared):
        rows = {row.column: row for row in compared if row.system == system}
        cells = (f"{rows[name].mean.value:.2f}{rows[name].stars}" if name in rows else "-" for name in columns)
        table.add_row(Text(escape_terminal(system)), *map(Text, cells))
    table.caption = Text(
        "*, **: differs from the best of its column with p < 0.05, 0.01 (Wilcoxon's signed ranks, Holm)"
    )
    return table
