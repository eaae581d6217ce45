"""The report of judgements that others judged: how many are right, and how far those who say so agree."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.files.annotations import ACCURATE, INACCURATE
from faithkit.metrics.agreement import agreement
from faithkit.pages.tables import fields_table, figure, figures_table, format_metric, harmless, percent
from faithkit.published.tables import published_table
from faithkit.records import UNPARSED, Example
from faithkit.reports.report import Report
from faithkit.statistics.intervals import Groups, Metric, bootstrap, means


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
        metrics |= _rates(name, labels, group_of, num_resamples)
    pairs: dict[tuple[str, str], dict[str, Metric]] = {}
    for first, second in combinations(annotators, 2):
        both = [id_ for id_ in annotators[first] if id_ in annotators[second]]
        if not both:
            said.append(f"{first} and {second} have no row in common")
            continue
        one, other = ([annotators[name][id_] for id_ in both] for name in (first, second))
        scored = agreement(one, other, [group_of[id_] for id_ in both], num_resamples=num_resamples)
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
        tables.append(_examples_table(examples, judgements, annotators, num_examples))
    return Report(metrics=metrics, tables=tuple(tables), notes=tuple(said))


def _rates(name: str, labels: Mapping[str, str], group_of: Mapping[str, str], num_resamples: int) -> dict[str, Metric]:
    groups = Groups.of(group_of[id_] for id_ in labels)
    columns = {
        f"accurate_rate/{name}": [label == ACCURATE for label in labels.values()],
        f"unparsed_rate/{name}": [label == UNPARSED for label in labels.values()],
    }
    return bootstrap(groups, means(groups, columns), shares=True, num_resamples=num_resamples).metrics


def _rates_table(
    annotators: Mapping[str, Mapping[str, str]], metrics: Mapping[str, Metric], *, title: str, dataset: str
) -> Table:
    heads = ("judgements", "right", "unparsed")
    table = figures_table(f"{title}: judgements found right, percent", "by", heads, min_width=20)
    for name, labels in annotators.items():
        right, unparsed = (metrics[f"{kind}/{name}"] for kind in ("accurate_rate", "unparsed_rate"))
        table.add_row(Text(_shown(name)), f"{len(labels):,}", percent(right), percent(unparsed, bounds=False))
    lines = ["95% intervals over groups"]
    if dataset == "halludial":
        published, agreed = published_table("halludial_rationales"), published_table("halludial_agreement").rows[0]
        table.add_section()
        for row in published.rows:
            if row["human"] is not None:
                table.add_row(f"of {row['system']} *", "-", figure(row["human"]), "-")
        lines.append(f"* {published.citation}: annotators on {agreed['judgements']} judgements that say hallucinated")
    table.caption = Text("\n".join(lines))
    return table


def _pairs_table(
    pairs: Mapping[tuple[str, str], Mapping[str, Metric]], kappas: Sequence[float], *, title: str, dataset: str
) -> Table:
    heads = ("rows", "agreement, percent", "Cohen's kappa")
    table = figures_table(f"{title}: agreement on whether a judgement is right", "pair", heads, min_width=20)
    for names, found in pairs.items():
        share, kappa = found["agreement"], format_metric(found.get("kappa"))
        table.add_row(Text(_shown(" and ".join(names))), f"{share.n:,}", percent(share), kappa)
    lines = [f"mean kappa {np.mean(kappas):.2f}"] if len(kappas) > 1 else []
    lines.append("95% intervals over groups")
    if dataset == "halludial":
        published = published_table("halludial_agreement")
        row = published.rows[0]
        kappa = f"kappa {row['mean']} in the mean ({row['low']:.2f} to {row['high']:.2f})"
        lines.append(f"{published.citation}: {row['annotators']} annotators, {kappa}")
    table.caption = Text("\n".join(lines))
    return table


def _examples_table(
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

    table = fields_table("judgements to judge")
    for example in sorted((one for one in examples if said_of(one)), key=order)[:limit]:
        labels = [f"{_shown(name)}: {found[example.id]}" for name, found in annotators.items() if example.id in found]
        fields = {
            "id": example.id,
            "knowledge": example.knowledge,
            "response": example.response,
            "judgement": judgements[example.id],
        }
        for name, text in fields.items():
            table.add_row(name, Text(harmless(text, 400)))
        table.add_row("right?", Text(harmless(", ".join(labels), 400)), end_section=True)
    return table


def _shown(name: str) -> str:
    return harmless(name.replace("_", " "))
