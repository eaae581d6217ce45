"""Tables of the metrics of responses: beside baselines, against another system, across datasets, and examples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.metrics.judge_error import corrected_rate
from faithkit.metrics.responses.judges import CRITIC, ResponseJudge
from faithkit.metrics.responses.measure import gold_response
from faithkit.metrics.responses.response_columns import MetricColumns
from faithkit.pages.tables import (
    add_context_rows,
    escape_terminal,
    format_metric,
    format_p,
    format_percent,
    new_field_table,
    new_number_table,
)
from faithkit.records import Example
from faithkit.reports.report import Row, build_sample
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Values

# In the order of the tables: the name, what a reader sees, and what it is shown in.
PERCENT, PLAIN = 100.0, 1.0
CRITIC_RATE = f"{CRITIC}_rate"
SHOWN: Mapping[str, tuple[str, float]] = {
    CRITIC_RATE: ("critic: hallucinated", PERCENT),
    "q2_f1": ("Q2 F1", PERCENT),
    "q2_nli": ("Q2 NLI", PERCENT),
    "official_q2_f1": ("official Q2 F1", PERCENT),
    "official_q2_nli": ("official Q2 NLI", PERCENT),
    "bertscore_precision": ("BERTScore P", PERCENT),
    "bertscore_recall": ("BERTScore R", PERCENT),
    "bertscore_f1": ("BERTScore F1", PERCENT),
    "official_bertscore": ("official BERTScore", PERCENT),
    "knowledge_f1": ("knowledge F1", PERCENT),
    "official_f1": ("official F1", PERCENT),
    "official_bleu": ("official BLEU, knowledge", PLAIN),
    "density": ("density, tokens", PLAIN),
    "coverage": ("coverage", PERCENT),
    "bleu": ("BLEU", PLAIN),
    "rouge_1": ("ROUGE-1", PERCENT),
    "rouge_2": ("ROUGE-2", PERCENT),
    "rouge_l": ("ROUGE-L", PERCENT),
    "distinct_1": ("distinct-1", PERCENT),
    "distinct_2": ("distinct-2", PERCENT),
    "num_words": ("words", PLAIN),
    "fallback": ("fallback", PERCENT),
    "fallback_unanswerable": ("  if unanswerable", PERCENT),
    "fallback_answerable": ("  if answerable", PERCENT),
}
TRANSFER = (CRITIC_RATE, "q2_f1", "q2_nli", "bertscore_f1", "knowledge_f1", "density", "coverage", "num_words")
JUDGED = ("critic_score", "q2_nli", "bertscore_f1", "knowledge_f1", "coverage", "rouge_l", "fallback")
CAPTION = "percent but for BLEU, density and words; 95% intervals over dialogues"


def systems_table(systems: Mapping[str, Mapping[str, Metric]], *, title: str) -> Table:
    """Shows one column a system, one row a metric that any of them has."""
    table = new_number_table(title, "metric", systems)
    for name, (shown, scale) in SHOWN.items():
        if any(name in metrics for metrics in systems.values()):
            table.add_row(shown, *(_cell(metrics.get(name), scale) for metrics in systems.values()))
    sizes = sorted({metric.n for metrics in systems.values() for metric in metrics.values() if metric.n})
    table.caption = Text(f"{CAPTION}; n = {', '.join(f'{n:,}' for n in sizes)}")
    return table


def differences_table(
    first: Mapping[str, Metric],
    second: Mapping[str, Metric],
    differences: Mapping[str, Difference],
    *,
    title: str,
    judges: Sequence[ResponseJudge] = (),
) -> Table:
    """Shows both systems, the first less the second, and the p-value of the difference.

    Args:
        judges: Those beside the critic, whose rates are compared too.
    """
    table = new_number_table(title, "metric", ("predictions", "against", "difference", "p"))
    rates = {f"{judge.key}_rate": (f"{judge.name}: hallucinated", PERCENT) for judge in judges}
    for name, (shown, scale) in {CRITIC_RATE: SHOWN[CRITIC_RATE], **rates, **SHOWN}.items():
        if (found := differences.get(name)) is None:
            continue
        plain = [_cell(Metric(value=side[name].value), scale) for side in (first, second)]
        table.add_row(Text(escape_terminal(shown)), *plain, _cell(found.metric, scale), format_p(found.p_value))
    table.caption = Text(f"{CAPTION}; both on the same resamples; p two-sided, each metric by itself")
    return table


def datasets_table(datasets: Mapping[str, Mapping[str, Metric]]) -> Table:
    """Shows one column a dataset, with metrics that need no gold response (FaithDial, Table 8)."""
    table = new_number_table("responses across datasets", "metric", datasets)
    for name in TRANSFER:
        if any(name in metrics for metrics in datasets.values()):
            shown, scale = SHOWN[name]
            table.add_row(shown, *(_cell(metrics.get(name), scale) for metrics in datasets.values()))
    table.add_row("examples", *(f"{_size(metrics):,}" for metrics in datasets.values()))
    table.caption = Text(CAPTION)
    return table


def examples_table(
    examples: Sequence[Example],
    responses: Sequence[str],
    columns: MetricColumns,
    limit: int,
    *,
    max_characters: int = 400,
) -> Table:
    """Shows responses to judge by eye: half of them the least supported ones, the rest spread over the data."""
    table = new_field_table("responses to judge")
    rows = columns.rows()
    for place in choose_responses(columns, limit):
        example, values = examples[place], rows[place]
        table.add_row("id", Text(escape_terminal(example.id, max_characters)))
        add_context_rows(table, example, max_characters)
        table.add_row("gold", Text(escape_terminal(gold_response(example), max_characters)))
        table.add_row("response", Text(escape_terminal(responses[place], max_characters), style="bold"))
        table.add_row("values", Text(_values(values)), end_section=True)
    return table


def sample_rows(examples: Sequence[Example], responses: Sequence[str], columns: MetricColumns, limit: int) -> list[Row]:
    """Gives the same responses as `examples_table` as plain rows of equal columns, for loggers."""
    values = columns.rows()
    return [
        build_sample(
            examples[place], gold=gold_response(examples[place]), **{**values[place], "response": responses[place]}
        )
        for place in choose_responses(columns, limit)
    ]


def choose_responses(columns: MetricColumns, limit: int) -> list[int]:
    """Chooses the positions of up to `limit` examples, none twice."""
    size = len(columns.groups.index)
    doubt = columns.columns.get("critic_score", 1 - columns.columns["knowledge_f1"])
    worst = np.argsort(-np.nan_to_num(doubt), kind="stable")[: min(limit, size) // 2].tolist()
    others = [place for place in range(size) if place not in set(worst)]
    room = min(limit, size) - len(worst)
    return worst + [others[place * len(others) // room] for place in range(room)]


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {values[name]:.2f}" for name in JUDGED if values.get(name) is not None)


def _cell(metric: Metric | None, scale: float) -> str:
    if metric is not None and metric.low is not None and metric.high is not None and metric.high - metric.low < 1e-6:
        metric = Metric(value=metric.value)  # always the same, such as the gold response's overlap with itself
    return format_metric(metric, digits=1 if scale == PERCENT else 2, scale=scale)


def _size(metrics: Mapping[str, Metric]) -> int:
    return max((metric.n or 0 for metric in metrics.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """Corrected rates and errors by metric name, and what is shown of them."""

    metrics: dict[str, Metric]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def judge_report(
    judges: Sequence[ResponseJudge],
    examples: Sequence[Example],
    systems: Mapping[str, tuple[Mapping[str, Values], Mapping[str, Metric]]],
    *,
    title: str,
    num_resamples: int = 1000,
) -> JudgeReport:
    """Corrects every judge's rate of every system by the judge's own error.

    Args:
        systems: By name columns and metrics of the responses; the first system's metrics have no prefix.
    """
    if not judges:
        return JudgeReport(metrics={}, tables=(), notes=())
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    heads = ("as it calls them", "corrected by its error")
    rates = new_number_table(f"{title}: responses called hallucinated, percent", ["judge", "responses"], heads)
    groups = [example.group for example in examples]
    for judge in judges:
        for number, (system, (columns, measured)) in enumerate(systems.items()):
            rate, metric = f"{judge.key}_rate", None
            if rate not in measured:
                continue
            if judge.error is not None:
                corrected = corrected_rate(columns[rate], groups, judge.error, num_resamples=num_resamples)
                metric = corrected.metric
                prefix = "" if number == 0 else f"{system}/"
                metrics |= {f"{prefix}{rate}_corrected": metric} if metric else {}
                notes += [f"{judge.name}, {system}: {corrected.note}"] if corrected.note else []
            rates.add_row(
                Text(escape_terminal(judge.name)), system, format_percent(measured[rate]), format_percent(metric)
            )
    rates.caption = Text("corrected: if the judge errs on these responses as on its labelled rows; 95% intervals")
    errors = list(_measure_errors(judges, num_resamples))
    for judge, found in errors:
        metrics |= {f"judge/{judge.key}_{name}": metric for name, metric in found.items()}
    if not errors:
        notes.append("no rate is corrected: name rows that people labelled, benchmark.judge_labels=[{dataset, path}]")
    tables = (rates, _error_table(errors, title)) if errors else (rates,)
    return JudgeReport(metrics=metrics, tables=tables, notes=tuple(notes))


def _measure_errors(
    judges: Sequence[ResponseJudge], num_resamples: int
) -> Iterator[tuple[ResponseJudge, dict[str, Metric]]]:
    for judge in judges:
        if judge.error is not None:
            yield judge, judge.error.metrics(num_resamples=num_resamples)


def _error_table(errors: Sequence[tuple[ResponseJudge, Mapping[str, Metric]]], title: str) -> Table:
    heads = ("of hallucinated found", "of faithful called so", "people", "judge")
    table = new_number_table(f"{title}: the judges against people's labels, percent", "judge", heads)
    lines = []
    for judge, found in errors:
        assert judge.error is not None
        hit, missed, alarms, passed = judge.error.table.sum(axis=0)
        size = hit + missed + alarms + passed
        shares = [f"{100 * part / size:.1f}" for part in (hit + missed, hit + alarms)]
        table.add_row(
            Text(escape_terminal(judge.name)),
            format_percent(found["recall"]),
            format_percent(found["false_alarms"]),
            *shares,
        )
        lines.append(f"{judge.name}: on {judge.error.name}")
    table.caption = Text(
        "\n".join(map(escape_terminal, lines)) + "\npeople, judge: the share that each calls hallucinated there"
    )
    return table
