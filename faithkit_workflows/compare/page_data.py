"""Gathers what the report's page shows in its tables: runs, metrics, pairs, slices, confusions as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.pages.page_parts import round_score
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.paired import LABELS, SPANS, Pair
from faithkit_workflows.compare.report import ComparedSet, RunReport
from faithkit_workflows.compare.slices import METRICS, title_of
from faithkit_workflows.compare.sweep_page import sweep_data


def table_data(report: RunReport) -> dict[str, Any]:
    """Gives everything but the answers, as page_files/report.js reads it."""
    names = [run.name for run in report.runs]
    tested = [name for name in (*LABELS, *SPANS) if any(name in pair.differences for pair in report.pairs)]
    return {
        "settings": list(report.settings),
        "runs": [
            [
                run.name,
                run.script,
                str(run.state),
                str(run.began or "–"),
                *(told[n] for told in report.settings.values()),
            ]
            for n, run in enumerate(report.runs)
        ],
        "metrics": [_metrics(part, own, names) for part, own in report.metrics.items()],
        "sweeps": sweep_data(report.sweeps),
        "tested": tested,
        "pairs": [
            {"name": one.test_set.name, "rows": rows}
            for one in report.sets
            if (rows := [_pair(pair) for pair in report.pairs if pair.test_set == one.test_set.name])
        ],
        "sliced": METRICS,
        "slices": [_slices(one) for one in report.sets if one.slices],
        "confusions": {
            one.test_set.name: {name: counts.tolist() for name, counts in one.confusions.items()} for one in report.sets
        },
    }


def _metrics(part: str, own: Mapping[int, Mapping[str, Metric]], names: Sequence[str]) -> dict[str, Any]:
    having = {name: None for metrics in own.values() for name in metrics}
    shorts = [
        *(name for name in (*LABELS, *SPANS) if name in having),
        *(n for n in having if n not in (*LABELS, *SPANS)),
    ]
    rows = [[names[n], *(_metric(metrics.get(name)) for name in shorts)] for n, metrics in own.items()]
    return {"name": part, "names": shorts, "rows": rows}


def _metric(metric: Metric | None) -> list[Any] | None:
    return None if metric is None else [round_score(metric.value), round_score(metric.low), round_score(metric.high)]


def _pair(pair: Pair) -> dict[str, Any]:
    differences = {
        name: [round_score(one.value), round_score(one.low), round_score(one.high), one.p_value, pair.corrected[name]]
        for name, one in pair.differences.items()
    }
    alone = pair.mcnemar.first_alone, pair.mcnemar.second_alone
    return {
        "first": pair.first,
        "second": pair.second,
        "rows": pair.num_rows,
        "groups": pair.num_groups,
        "differences": differences,
        "mcnemar": [*alone, pair.mcnemar.p_value, pair.mcnemar.corrected],
    }


def _slices(one: ComparedSet) -> dict[str, Any]:
    systems = [system.name for system in one.systems if system.name in one.confusions]
    rows = [
        [
            title_of(cut.field),
            cut.value,
            cut.num_rows,
            round_score(cut.hallucinated),
            [[_metric(cut.metrics[system].get(name)) for name in METRICS] for system in systems],
        ]
        for cut in one.slices
    ]
    return {"name": one.test_set.name, "systems": systems, "rows": rows}
