"""Measures how far annotators agree on labels, ratings and spans, and whether human scores of systems differ.

As in FaithDial's Table 7, each system is compared with the best one of a column.
The paper marks p < 0.05 and p < 0.01 and names no test. Scores of two systems on the same items are paired, so there
are three results: the difference of the means with its interval over groups (faithkit/statistics/bootstrap.py), the p
of Wilcoxon's signed-rank test on the same items (Wilcoxon 1945), and this p corrected for the number of systems in the
column (Holm 1979), which the stars show.

An item's score is the mean over its annotators. A label's column is the share of annotators who chose it. A rating's
column has its value, over the items with a rating for both systems, since only faithful responses are rated.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from rich.text import Text

from faithkit.files.run_folder import RunFolder
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table, print_tables
from faithkit.scores.board import correct_by_holm
from faithkit.statistics.bootstrap import Difference, Evaluation, Groups, ScoredMetrics, mean_statistic
from faithkit.statistics.metric import NUMBER, PROPORTION, Metric, MetricKind, full_names, write_results
from faithkit_papers.annotation.measures import (
    NOMINAL,
    ORDINAL,
    SPANS,
    Answered,
    evaluate_spans,
    labels_in,
    marked_items,
    measure,
    pair_kappas,
    questions_of,
    ratings_of,
    read_answers,
)
from faithkit_papers.annotation.project import PROJECT, read_rows
from faithkit_papers.annotation.schemes import CHOICES
from faithkit_workflows.settings.construction import annotations_file

MEASURES = {
    "agreement": "observed",
    "cohen_kappa": "Cohen's kappa",
    "fleiss_kappa": "Fleiss' kappa",
    "randolph_kappa": "Randolph's kappa",
    "alpha": "Krippendorff's alpha",
    "alpha_ordinal": "alpha, ordinal",
    "char_f1": "F1 of characters",
    "typed_char_f1": "F1 with types",
    "char_alpha": "alpha of characters",
}
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One system in one column: its mean, and how it differs from the best (None for the best itself).

    Args:
        p_wilcoxon: NaN where the two are equal on every item.
        p_holm: The same, corrected for the systems of the column.
    """

    column: str
    system: str
    mean: Metric
    difference: Difference | None = None
    p_wilcoxon: float = float("nan")
    p_holm: float = float("nan")

    @property
    def stars(self) -> str:
        """** below 0.01, * below 0.05."""
        return "**" if self.p_holm < 0.01 else "*" if self.p_holm < 0.05 else ""


Scores = Mapping[str, Mapping[str, float]]  # by system and item
Labels = Mapping[str, Iterable[str]]  # by question


def columns_of(
    answered: Sequence[Answered], kinds: Mapping[str, str], labels: Labels | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Collects scores by column, system and item: ratings as they are, labels as shares (`question=label`).

    Args:
        labels: The labels of questions; one that was never chosen has the share 0.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for question, kind in kinds.items():
        given = [one for one in answered if question in one.answers]
        if kind == ORDINAL:
            found[question] = _means([(one, float(one.answers[question])) for one in given])
        elif kind == NOMINAL:
            for label in _labels_of(given, question, labels):
                # A question may be asked about some answers only: the others do not have the label.
                chosen = [(one, float(label in labels_in(one.answers.get(question, ())))) for one in answered]
                found[f"{question}={label}"] = _means(chosen)
    return found


def measure_shares(
    answered: Sequence[Answered], kinds: Mapping[str, str], labels: Labels | None = None, *, num_resamples: int = 1000
) -> dict[str, Metric]:
    """Computes `<question>=<label>/share` over the items to which the question was answered."""
    groups = {f"{one.system or ''}/{one.context}": one.group for one in answered}
    found = {}
    for question in (name for name, kind in kinds.items() if kind == NOMINAL):
        given = [one for one in answered if labels_in(one.answers.get(question, ()))]
        for label in _labels_of(given, question, labels) if given else ():
            means = _means((one, float(label in labels_in(one.answers[question]))) for one in given)
            values = {f"{system}/{item}": value for system, of in means.items() for item, value in of.items()}
            rows = Groups.of(groups[item] for item in values)
            scored = _evaluate_mean(rows, list(values.values()), PROPORTION).score(num_resamples=num_resamples)
            found[f"{question}={label}/share"] = scored.metrics["mean"]
    return found


def _labels_of(answered: Iterable[Answered], question: str, labels: Labels | None) -> list[str]:
    chosen = {label for one in answered for label in labels_in(one.answers[question])}
    return sorted(chosen.union((labels or {}).get(question, ())))


def _means(values: Iterable[tuple[Answered, float]]) -> dict[str, dict[str, float]]:
    """Averages the values of each system and item over annotators."""
    given: dict[str, dict[str, list[float]]] = {}
    for one, value in values:
        given.setdefault(one.system or "", {}).setdefault(one.context, []).append(value)
    return {
        system: {item: float(np.mean(several)) for item, several in items.items()} for system, items in given.items()
    }


def compare_column(
    column: str, scores: Scores, groups: Mapping[str, str], *, num_resamples: int = 1000
) -> list[Compared]:
    """Compares every system of a column with the best, in the order of the systems."""
    from scipy.stats import wilcoxon

    less = column.rpartition("=")[2].lower() in ("hallucination", "generic", "no", "inaccurate")
    averages = {system: float(np.mean(list(of.values()))) for system, of in scores.items()}
    best = (min if less else max)(averages, key=averages.__getitem__)
    found = []
    for system, of in scores.items():
        rows = Groups.of(groups[item] for item in of)
        kind = PROPORTION if "=" in column else NUMBER
        mean = _evaluate_mean(rows, list(of.values()), kind).score(num_resamples=num_resamples).metrics["mean"]
        compared = Compared(column=column, system=system, mean=mean)
        shared = [item for item in of if item in scores[best]]
        if system != best and shared:
            rows = Groups.of(groups[item] for item in shared)
            first, second = (np.array([side[item] for item in shared]) for side in (of, scores[best]))
            one, best_one = (_evaluate_mean(rows, values, kind) for values in (first, second))
            difference = one.subtract(best_one, num_resamples=num_resamples)["mean"]
            changed = first - second
            p = float(wilcoxon(changed, zero_method="pratt").pvalue) if changed.any() else float("nan")
            compared = replace(compared, difference=difference, p_wilcoxon=p)
        found.append(compared)
    tested = [row.p_wilcoxon for row in found if np.isfinite(row.p_wilcoxon)]
    corrected = iter(correct_by_holm(tested))
    return [replace(row, p_holm=next(corrected)) if np.isfinite(row.p_wilcoxon) else row for row in found]


def _evaluate_mean(groups: Groups, values: ArrayLike, kind: MetricKind) -> Evaluation:
    return Evaluation(groups=groups, statistic=mean_statistic(groups, {"mean": values}), kinds=kind)


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
                measured[f"{name}/{label}"] = evaluate_spans(items, label, num_resamples=num_resamples)
            continue
        ratings = ratings_of(answered, name, kind)
        measured[name] = measure(ratings, ordinal=kind == ORDINAL, num_resamples=num_resamples)
        pairs[name] = pair_kappas(ratings)
        labels = (
            {label for one in answered for label in labels_in(one.answers.get(name, ()))} if kind == NOMINAL else ()
        )
        for label in sorted(labels) if len(labels) > 2 else ():  # two labels are complements
            chosen = ratings_of(answered, name, kind, label)
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
    tables = [
        _table(f"agreement on {what}", of) for what, of in {"labels and ratings": others, "spans": spans}.items() if of
    ]
    systems = list(dict.fromkeys(row.system for row in compared))
    if len(systems) > 1:  # systems as rows and scores as columns, as in the paper
        columns = list(dict.fromkeys(row.column for row in compared))
        table = new_number_table("scores by system", "system", columns, show_edge=True)
        for system in systems:
            rows = {row.column: row for row in compared if row.system == system}
            cells = (f"{rows[name].mean.value:.2f}{rows[name].stars}" if name in rows else "-" for name in columns)
            table.add_row(Text(escape_terminal(system)), *map(Text, cells))
        test = "Wilcoxon's signed ranks, Holm"
        table.caption = Text(f"*, **: differs from the best of its column with p < 0.05, 0.01 ({test})")
        tables.append(table)
    print_tables(*tables)
    for name, values in pairs.items():
        if len(values) > 1:
            low, high = min(values.values()), max(values.values())
            log.info("%s: Cohen's kappa of %d pairs of annotators from %.2f to %.2f", name, len(values), low, high)
    for note in dict.fromkeys(note for name in kinds for note in measured[name].notes):
        log.info("note: %s", note)


def _table(title: str, measured: Mapping[str, ScoredMetrics]) -> Table:
    """Makes the table of all measures of each question and one of each of its labels; metrics.json has all."""
    table = new_number_table(title, ("question", "measure"), ("agreement", "n"), show_edge=True)
    for name, scored in measured.items():
        question, _, label = name.partition("/")
        shown = [one for one in MEASURES if one in scored.metrics and (not label or one in ("alpha", "char_f1"))]
        for place, one in enumerate(shown):
            metric = scored.metrics[one]
            head = "" if place else f"  {escape_terminal(label)}" if label else escape_terminal(question)
            table.add_row(Text(head), Text(MEASURES[one]), format_metric(metric), f"{metric.n:,}")
    return table
