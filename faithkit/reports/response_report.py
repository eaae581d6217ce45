"""The report of generated responses: metrics with baselines and another system, judges with errors, and a sample."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.judge_error import corrected_rate
from faithkit.metrics.responses.measure_responses import (
    MetricColumns,
    MetricModels,
    PairedResponses,
    ResponseJudge,
    gold_response,
    measure_part,
    measure_responses,
)
from faithkit.pages.page_tables import (
    add_fields,
    choose_evenly,
    context_fields,
    escape_terminal,
    format_metric,
    format_p,
    new_field_table,
    new_number_table,
)
from faithkit.records import Example, Prediction
from faithkit.reports.report import (
    Provenance,
    Report,
    Row,
    Sample,
    Systems,
    add_provenance,
    build_sample,
    list_sizes,
    score_table,
)
from faithkit.reports.write_reports import EvaluationResult, collect_samples, write_benchmark_results
from faithkit.scores.board import Board, conclude_by
from faithkit.scores.measures import CRITIC_RATE, PERCENT, response_measures
from faithkit.settings.config_files import COPY, GOLD, RESPONSE_BASELINES
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Values

# What decides which responses are better: whether they are faithful, by the strongest metric that was computed.
MAIN_RESPONSE_METRICS = (CRITIC_RATE, "q2_nli", "bertscore_f1", "knowledge_f1")
CAPTION = "percent but for BLEU, density and words; 95% intervals over dialogues"


def systems_table(systems: Systems, *, title: str) -> Table:
    """Shows one column per system and one row per metric that any of them has."""
    caption = [f"{CAPTION}; n = {list_sizes(systems.values())}"]
    names = [name for name, metric in response_measures().items() if metric.title]
    return new_number_table(title, "metric", systems, _metric_rows(systems, names), caption=caption)


def _metric_rows(systems: Systems, names: Iterable[str]) -> Iterator[list[str]]:
    """Makes a row of each metric that any of the systems has."""
    for name in names:
        if any(name in metrics for metrics in systems.values()):
            metric = response_measures()[name]
            yield [metric.title, *(_cell(metrics.get(name), metric.scale) for metrics in systems.values())]


def differences_table(
    first: Mapping[str, Metric],
    second: Mapping[str, Metric],
    differences: Mapping[str, Difference],
    *,
    title: str,
    judges: Sequence[ResponseJudge] = (),
) -> Table:
    """Shows both systems, their difference and its p-value.

    Args:
        judges: Further judges; their rates are compared too.
    """
    rates = {f"{judge.key}_rate": (f"{judge.name}: hallucinated", PERCENT) for judge in judges}
    titles = {name: (metric.title, metric.scale) for name, metric in response_measures().items()}
    rows = (
        [
            escape_terminal(shown),
            *(_cell(Metric(value=side[name].value), scale) for side in (first, second)),
            _cell(differences[name].metric, scale),
            format_p(differences[name].p_value),
        ]
        for name, (shown, scale) in {CRITIC_RATE: titles[CRITIC_RATE], **rates, **titles}.items()
        if name in differences and shown
    )
    caption = [f"{CAPTION}; both on the same resamples; p two-sided, uncorrected"]
    return new_number_table(title, "metric", ("predictions", "against", "difference", "p"), rows, caption=caption)


def choose_responses(columns: MetricColumns, limit: int) -> list[int]:
    """Chooses the positions of up to `limit` examples, none twice."""
    size = len(columns.groups.index)
    doubt = columns.columns.get("critic_score", 1 - columns.columns["knowledge_f1"])
    worst: list[int] = np.argsort(-np.nan_to_num(doubt), kind="stable")[: min(limit, size) // 2].tolist()
    others = [place for place in range(size) if place not in set(worst)]
    return worst + choose_evenly(others, min(limit, size) - len(worst))


def _cell(metric: Metric | None, scale: float) -> str:
    if metric is not None and metric.low is not None and metric.high is not None and metric.high - metric.low < 1e-6:
        metric = Metric(value=metric.value)  # always the same, such as the gold response's overlap with itself
    return format_metric(metric, digits=1 if scale == PERCENT else 2, scale=scale)


def judge_report(
    judges: Sequence[ResponseJudge],
    examples: Sequence[Example],
    systems: Mapping[str, tuple[Mapping[str, Values], Mapping[str, Metric]]],
    *,
    title: str,
    num_resamples: int = 1000,
) -> Report:
    """Corrects the rates of all judges and systems by the error of the judge.

    Args:
        systems: By name columns and metrics of the responses; the first system's metrics have no prefix.
    """
    if not judges:
        return Report(metrics={})
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    rows: list[Row] = []
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
            rows.append(((judge.name, system), {"judged": measured[rate], "corrected": metric}))
    rates = score_table(
        f"{title}: responses called hallucinated, percent",
        ["judge", "responses"],
        ("judged", "corrected"),
        rows,
        caption=[
            "corrected by the judge's errors, if they are as frequent here as on its labelled rows; 95% intervals"
        ],
    )
    errors = [(one, one.error.metrics(num_resamples=num_resamples)) for one in judges if one.error is not None]
    for judge, found in errors:
        metrics |= {f"judge/{judge.key}_{name}": metric for name, metric in found.items()}
    if not errors:
        notes.append("no rate is corrected: benchmark.judge_labels=[{dataset, path}] gives rows that people labelled")
        return Report(metrics=metrics, tables=(rates,), notes=tuple(notes))
    rows, lines = [], []
    for judge, found in errors:
        assert judge.error is not None
        hit, missed, alarms, passed = judge.error.table.sum(axis=0)
        size = hit + missed + alarms + passed
        shares = {"people": 100 * (hit + missed) / size, "judge": 100 * (hit + alarms) / size}
        rows.append((judge.name, {**found, **shares}))
        lines.append(escape_terminal(f"{judge.name}: on {judge.error.name}"))
    lines.append("people, judge: the share that each calls hallucinated; false alarms: of faithful rows")
    title = f"{title}: the judges against people's labels, percent"
    heads = {"recall": "recall", "false_alarms": "false alarms", "people": "people", "judge": "judge"}
    table = score_table(title, "judge", heads, rows, caption=lines)
    return Report(metrics=metrics, tables=(rates, table), notes=tuple(notes))


def response_report(
    paired: PairedResponses,
    models: MetricModels,
    *,
    title: str,
    scores_path: Path | None = None,
    baselines: Sequence[str] = RESPONSE_BASELINES,
    num_resamples: int = 1000,
    num_examples: int = 5,
    progress: bool = False,
    origin: Provenance | None = None,
) -> Report:
    """Measures responses, and writes the values of each example as JSON lines to `scores_path`.

    Metrics of baselines are `gold/...` and `copy/...`, without Q2. Those of another system are `against/...`, the
    differences from it `difference/...`, and their p-values `p_value/...`.

    Args:
        baselines: Any of `gold`, the dataset's response, and `copy`, the knowledge as the response.
        origin: Where the responses are from, and what their judges have seen; None leaves it out.
    """
    columns = measure_responses(paired.examples, paired.texts, models, progress=progress)
    board = Board(title, num_resamples=num_resamples)
    board.add("predictions", columns.evaluation(), title="the predictions")
    scored, values = board.metrics("predictions"), columns.rows()
    if scores_path is not None:
        scores_path.parent.mkdir(parents=True, exist_ok=True)
        every = zip(paired.examples, paired.texts, values, strict=True)
        write_jsonl(scores_path, ({"id": example.id, "response": text, **row} for example, text, row in every))
    metrics, judged = dict(scored), {"predictions": (columns.columns, scored)}
    baseline_texts = {
        GOLD: [gold_response(example) for example in paired.examples],
        COPY: [example.knowledge for example in paired.examples],
    }
    quick = replace(models, q2=None, official=models.official and replace(models.official, q2=None))  # Q2 is slow
    for name in baselines:
        of_baseline = measure_responses(paired.examples, baseline_texts[name], quick)
        board.add(name, of_baseline.evaluation())
        judged[name] = of_baseline.columns, board.metrics(name)
        metrics |= {f"{name}/{metric}": value for metric, value in board.metrics(name).items()}
    tables, conclusion = [systems_table({name: found for name, (_, found) in judged.items()}, title=title)], None
    if paired.against is not None:
        theirs = measure_responses(paired.examples, paired.against, models, progress=progress)
        board.add("against", theirs.evaluation())
        found, differences = board.metrics("against"), board.subtract("predictions", "against")
        metrics |= {f"against/{name}": metric for name, metric in found.items()}
        for name, difference in differences.items():
            metrics |= difference.to_metrics(name)
        main = next((name for name in MAIN_RESPONSE_METRICS if name in differences), None)
        conclusion = conclude_by(main, "the predictions", "against", differences[main]) if main else None
        judged["against"] = (theirs.columns, found)
        sides = scored, found, differences
        tables.insert(0, differences_table(*sides, title=f"{title}, paired", judges=models.others))
    judges = judge_report(models.judges, paired.examples, judged, title=title, num_resamples=num_resamples)
    metrics |= judges.metrics
    # Corrected rates are the ones to cite.
    corrected = judges.tables[:1] if any(judge.error for judge in models.judges) else ()
    headline = (tables.pop(0), *corrected)
    tables += judges.tables[len(corrected) :]
    samples: list[Sample] = []
    if num_examples:
        shown = ("critic_score", "q2_nli", "bertscore_f1", "knowledge_f1", "coverage", "rouge_l", "fallback")
        tables.append(new_field_table("responses to judge"))
        for place in choose_responses(columns, num_examples):
            example, text, row = paired.examples[place], paired.texts[place], values[place]
            samples.append(build_sample(example, gold=gold_response(example), **{**row, "response": text}))
            fields = {"id": example.id, **context_fields(example), "gold": gold_response(example)}
            response = Text(escape_terminal(text, 400), style="bold")
            figures = ", ".join(f"{name} {row[name]:.2f}" for name in shown if row.get(name) is not None)
            cells: dict[str, str | Text] = {**fields, "response": response, "values": figures}
            add_fields(tables[-1], cells)
    notes = (*models.missing, *paired.notes, *board.notes("predictions"), *judges.notes)
    answers = [(e, Prediction(id=e.id, text=text)) for e, text in zip(paired.examples, paired.texts, strict=True)]
    report = Report(
        metrics=metrics,
        conclusion=conclusion,
        headline=headline,
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        answers=answers,
        rescore=lambda rows: (
            measure_part(columns, paired, rows).evaluation().score(num_resamples=num_resamples).metrics
        ),
    )
    return add_provenance(report, origin, title=title, build_table=systems_table)


def report_responses(
    run: RunFolder,
    datasets: Mapping[str, PairedResponses],
    models: MetricModels,
    *,
    config: Mapping[str, Any],
    data: Mapping[str, Any],
    origins: Mapping[str, Provenance],
) -> EvaluationResult:
    """Scores the responses to each dataset, writes metrics.json and `scores/<dataset>.jsonl`, and prints it all."""
    reports = {
        name: [
            response_report(
                paired,
                models,
                title=f"test/{name}",
                scores_path=run.path / "scores" / f"{name}.jsonl",
                baselines=config["benchmark"]["baselines"],
                num_resamples=config["num_resamples"],
                num_examples=config["num_examples"],
                progress=True,
                origin=origins[name],
            )
        ]
        for name, paired in datasets.items()
    }
    samples = collect_samples(reports)
    if len(reports) > 1:
        found = {name: report.metrics for name, [report] in reports.items()}  # those that need no gold response
        sizes = (max((metric.n or 0 for metric in metrics.values()), default=0) for metrics in found.values())
        names = (CRITIC_RATE, "q2_f1", "q2_nli", "bertscore_f1", "knowledge_f1", "density", "coverage", "num_words")
        rows = [*_metric_rows(found, names), ["examples", *(f"{size:,}" for size in sizes)]]
        across = new_number_table("responses across datasets", "metric", found, rows, caption=[CAPTION])
        reports = {"across datasets": [Report(metrics={}, headline=(across,))], **reports}
    return write_benchmark_results(run, reports, config, data, samples)
