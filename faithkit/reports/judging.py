"""The report of comparative judging: both orders, position bias, parts of the data, baselines, the paper's figures.
The report of judgements that others judged: how many are right, and how far those who say so agree.
HaluEval's own accuracy: verdicts read as its script reads them, beside the same replies read strictly.

Its script looks for the letters Yes and No anywhere in a reply. One alone is the verdict, so that None and Nobel say
No; both or neither is a failure, which counts as wrong. So is a request without a reply, whatever the error's words.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.baselines.word_overlap import length_predictions
from faithkit.files.annotations import ACCURATE, INACCURATE
from faithkit.metrics.judging import BIAS, ORDER, OTHER, comparison_metrics, measure_agreement, predict_pair_baselines
from faithkit.metrics.outcomes import align_predictions
from faithkit.pages.tables import (
    add_context_rows,
    choose_examples,
    escape_terminal,
    format_metric,
    format_percent,
    format_published,
    judge_outcome,
    new_field_table,
    new_number_table,
)
from faithkit.published.figures import ALL
from faithkit.published.tables import published_table
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.parts import PARTS, divide
from faithkit.reports.provenance import Provenance, Rows, add_provenance, select_rows
from faithkit.reports.report import Report
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import Metric

# By metric: the head of its column, and the column of the paper's table.
COMPARISON_COLUMNS: Mapping[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "mean"),
    "accuracy_first": ("first", "hallucinated_first"),
    "accuracy_last": ("last", "hallucinated_last"),
    "both_orders": ("both", ""),
    BIAS: ("bias", ""),
    "invalid_rate": ("inv.", "invalid"),
}
PAIR_BASELINE_KEYS = {"longer reply": "length_", "word overlap": "overlap_"}
MODEL = "model"
NUM_PUBLISHED_JUDGES = 3
COMPARISON_CAPTION = (
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
    for name, found_by in predict_pair_baselines(examples).items():
        rows[name] = comparison_metrics(examples, found_by, num_resamples=num_resamples).metrics
        metrics |= {f"{PAIR_BASELINE_KEYS[name]}{metric}": value for metric, value in rows[name].items()}
    for part, kept in _divide_pairs(examples).items():
        systems: dict[str, Mapping[str, Prediction]] = {MODEL: predictions, **predict_pair_baselines(kept)}
        for name, said in systems.items():
            own = {example.id: said[example.id] for example in kept}
            found = comparison_metrics(kept, own, num_resamples=num_resamples).metrics
            rows[f"{part.partition('/')[2]}: {name}"] = found
            metrics |= {f"{part}/{PAIR_BASELINE_KEYS.get(name, '')}{metric}": value for metric, value in found.items()}
    tables = [_comparison_table(rows, title=title, dataset=dataset, num_pairs=len(examples) // 2)]
    if num_examples:
        tables.append(_comparison_examples(choose_examples(examples, predictions, num_examples), predictions))
    report = Report(metrics=metrics, tables=tuple(tables), notes=(*notes, *scored.notes))
    if origin is None:
        return report

    def score(marked: Rows) -> Mapping[str, Metric]:
        whole = np.repeat(marked.reshape(-1, 2).all(axis=1), 2)  # pairs of which neither row was seen
        if not whole.any():
            return {}
        return comparison_metrics(*select_rows(examples, predictions, whole), num_resamples=num_resamples).metrics

    return add_provenance(report, origin, score, title=title, shown=tuple(COMPARISON_COLUMNS))


def _divide_pairs(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """Divides the rows of a dataset that has several parts."""
    first_fields = {source: fields[:1] for source, fields in PARTS.items()}
    found = {f"{field}/{value}": rows for field, value, rows in divide(examples, first_fields)}
    return found if len(found) > 1 else {}


def _comparison_table(rows: Mapping[str, Mapping[str, Metric]], *, title: str, dataset: str, num_pairs: int) -> Table:
    heads = [head for head, _ in COMPARISON_COLUMNS.values()]
    table = new_number_table(f"{title}: which of two replies is hallucinated, percent", "judge", heads, min_width=20)
    for name, metrics in rows.items():
        cells = [format_percent(metrics[metric], bounds=metric == "accuracy") for metric in COMPARISON_COLUMNS]
        table.add_row(Text(escape_terminal(name), style="bold" if name.endswith(MODEL) else ""), *cells)
    lines = [f"{num_pairs:,} pairs, each in both orders; 95% intervals over groups", COMPARISON_CAPTION]
    if dataset == "halludial":
        published = published_table("halludial_comparative")
        table.add_section()
        for row in sorted(published.rows, key=lambda row: -row["mean"])[:NUM_PUBLISHED_JUDGES]:
            table.add_row(
                f"{row['system']} *", *(format_published(row.get(column)) for _, column in COMPARISON_COLUMNS.values())
            )
        lines.append(f"* the best of {published.citation}: {published.protocol}")
    combined = rows[MODEL].get("combined_accuracy")
    if combined is not None:
        lines.append(f"by the probabilities of both orders together, whatever the bias: {format_percent(combined)}")
    table.caption = Text("\n".join(lines))
    return table


def _comparison_examples(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Table:
    table = new_field_table("answers to judge")
    for example in examples:
        said = predictions[example.id]
        table.add_row("id", Text(escape_terminal(example.id, 400)))
        add_context_rows(table, example)
        table.add_row("reply 1", Text(escape_terminal(example.response, 400)))
        table.add_row("reply 2", Text(escape_terminal(str(example.meta[OTHER]), 400)))
        if said.text:
            table.add_row("said", Text(escape_terminal(said.text, 400)))
        score = "-" if said.score is None else f"{said.score:.2f}"
        gold = f"reply {1 if example.meta[ORDER] == 'first' else 2} is hallucinated, P(reply 1) {score}: "
        table.add_row("verdict", Text(f"{gold}{judge_outcome(example, said)}"), end_section=True)
    return table


def meta_report(
    examples: Sequence[Example],
    judgements: Mapping[str, str],
    annotators: Mapping[str, Mapping[str, str]],
    *,
    title: str,
    reference: str = "",
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Report:
    """Computes metrics of each annotator (`accurate_rate/people`) and of each pair of them (`kappa/people/judge`).

    Args:
        examples: Those whose judgements were judged.
        judgements: What the judge said, by id.
        annotators: By name their labels by id; two are compared on the rows that both have labelled.
        reference: One of them that annotates nothing, such as the data's own labels: no part of the mean kappa.
        dataset: Whose published figures stand beside; empty for none.
    """
    group_of = {example.id: example.group for example in examples}
    metrics: dict[str, Metric] = {}
    said = list(notes)
    for name, labels in annotators.items():
        metrics |= _annotator_rates(name, labels, group_of, num_resamples)
    pairs: dict[tuple[str, str], dict[str, Metric]] = {}
    for first, second in combinations(annotators, 2):
        both = [id_ for id_ in annotators[first] if id_ in annotators[second]]
        if not both:
            said.append(f"{first} and {second} have no row in common")
            continue
        one, other = ([annotators[name][id_] for id_ in both] for name in (first, second))
        scored = measure_agreement(one, other, [group_of[id_] for id_ in both], num_resamples=num_resamples)
        pairs[first, second] = scored.metrics
        metrics |= {f"{name}/{first}/{second}": metric for name, metric in scored.metrics.items()}
        if "kappa" not in scored.metrics:
            said.append(f"{first} and {second}: kappa is not defined, both give every row one label")
    kappas = [found["kappa"].value for names, found in pairs.items() if "kappa" in found and reference not in names]
    if len(kappas) > 1:
        metrics["mean_kappa"] = Metric(value=float(np.mean(kappas)))
    tables = [_rates_table(annotators, metrics, title=title, dataset=dataset)]
    if pairs:
        tables.append(_pairs_table(pairs, kappas, title=title, dataset=dataset))
    if num_examples:
        tables.append(_judgement_examples(examples, judgements, annotators, num_examples))
    return Report(metrics=metrics, tables=tuple(tables), notes=tuple(said))


def _annotator_rates(
    name: str, labels: Mapping[str, str], group_of: Mapping[str, str], num_resamples: int
) -> dict[str, Metric]:
    groups = Groups.of(group_of[id_] for id_ in labels)
    columns = {
        f"accurate_rate/{name}": [label == ACCURATE for label in labels.values()],
        f"unparsed_rate/{name}": [label == UNPARSED for label in labels.values()],
    }
    return bootstrap(groups, mean_statistic(groups, columns), shares=True, num_resamples=num_resamples).metrics


def _rates_table(
    annotators: Mapping[str, Mapping[str, str]], metrics: Mapping[str, Metric], *, title: str, dataset: str
) -> Table:
    heads = ("judgements", "right", "unparsed")
    table = new_number_table(f"{title}: judgements found right, percent", "by", heads, min_width=20)
    for name, labels in annotators.items():
        right, unparsed = (metrics[f"{kind}/{name}"] for kind in ("accurate_rate", "unparsed_rate"))
        table.add_row(
            Text(_display_name(name)), f"{len(labels):,}", format_percent(right), format_percent(unparsed, bounds=False)
        )
    lines = ["95% intervals over groups"]
    if dataset == "halludial":
        published, agreed = published_table("halludial_rationales"), published_table("halludial_agreement").rows[0]
        table.add_section()
        for row in published.rows:
            if row["human"] is not None:
                table.add_row(f"of {row['system']} *", "-", format_published(row["human"]), "-")
        lines.append(f"* {published.citation}: annotators on {agreed['judgements']} judgements that say hallucinated")
    table.caption = Text("\n".join(lines))
    return table


def _pairs_table(
    pairs: Mapping[tuple[str, str], Mapping[str, Metric]], kappas: Sequence[float], *, title: str, dataset: str
) -> Table:
    heads = ("rows", "agreement, percent", "Cohen's kappa")
    table = new_number_table(f"{title}: agreement on whether a judgement is right", "pair", heads, min_width=20)
    for names, found in pairs.items():
        share, kappa = found["agreement"], format_metric(found.get("kappa"))
        table.add_row(Text(_display_name(" and ".join(names))), f"{share.n:,}", format_percent(share), kappa)
    lines = [f"mean kappa {np.mean(kappas):.2f}"] if len(kappas) > 1 else []
    lines.append("95% intervals over groups")
    if dataset == "halludial":
        published = published_table("halludial_agreement")
        row = published.rows[0]
        kappa = f"kappa {row['mean']} in the mean ({row['low']:.2f} to {row['high']:.2f})"
        lines.append(f"{published.citation}: {row['annotators']} annotators, {kappa}")
    table.caption = Text("\n".join(lines))
    return table


def _judgement_examples(
    examples: Sequence[Example],
    judgements: Mapping[str, str],
    annotators: Mapping[str, Mapping[str, str]],
    limit: int,
) -> Table:
    """Shows judgements that the annotators disagree on first, then those that any finds wrong."""

    def said_of(example: Example) -> list[str]:
        return [labels[example.id] for labels in annotators.values() if example.id in labels]

    def order(example: Example) -> tuple[int, bool]:
        labels = said_of(example)
        return -len(set(labels)), INACCURATE not in labels

    table = new_field_table("judgements to judge")
    for example in sorted((one for one in examples if said_of(one)), key=order)[:limit]:
        labels = [
            f"{_display_name(name)}: {found[example.id]}" for name, found in annotators.items() if example.id in found
        ]
        fields = {
            "id": example.id,
            "knowledge": example.knowledge,
            "response": example.response,
            "judgement": judgements[example.id],
        }
        for name, text in fields.items():
            table.add_row(name, Text(escape_terminal(text, 400)))
        table.add_row("right?", Text(escape_terminal(", ".join(labels), 400)), end_section=True)
    return table


def _display_name(name: str) -> str:
    return escape_terminal(name.replace("_", " "))


OFFICIAL_COLUMNS = {
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
    found = {part: _score_official(rows, predictions, num_resamples) for part, rows in sorted(parts.items())}
    metrics: dict[str, Metric] = {}
    for part, scored in found.items():
        prefix = "official/" if part == ALL or len(found) == 1 else f"official/task/{part}/"
        metrics |= {f"{prefix}{name}": metric for name, metric in scored.items()}
    whole = found[ALL] if ALL in found else next(iter(found.values()))
    accuracy, failed = format_percent(whole["accuracy"]), format_percent(whole["failed_rate"], bounds=False)
    note = f"as HaluEval's script reads replies: accuracy {accuracy}, failed {failed}"
    return Report(metrics=metrics, tables=(_official_table(found),), notes=(note,))


def _score_official(
    rows: Sequence[Example], predictions: Mapping[str, Prediction], num_resamples: int
) -> dict[str, Metric]:
    said = align_predictions(rows, {row.id: predictions[row.id] for row in rows})
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
    return bootstrap(groups, mean_statistic(groups, columns), shares=True, num_resamples=num_resamples).metrics


def _official_table(found: Mapping[str, Mapping[str, Metric]]) -> Table:
    title = "accuracy as HaluEval's script reads replies, percent"
    table = new_number_table(title, "task", OFFICIAL_COLUMNS.values(), min_width=14)
    for part, metrics in found.items():
        cells = [format_percent(metrics[name], bounds=name == "accuracy") for name in OFFICIAL_COLUMNS]
        table.add_row(Text(escape_terminal(part) or ALL), *cells)
    table.caption = Text(
        "official: Yes or No anywhere in the reply, both or neither failed and wrong; ours: the same replies read "
        "strictly; length: longer than the median is hallucinated"
    )
    return table
