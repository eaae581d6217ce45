"""The end of a run that scores responses: a report for each dataset, one table over several, and the run's folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.run_folder import RunFolder
from evaluation.conclude import conclude_reports
from evaluation.intervals import Metric
from evaluation.responses.given import Responses
from evaluation.responses.measure import Models
from evaluation.responses.report import response_report
from evaluation.responses.tables import transfer_table
from evaluation.tables import show


def conclude_responses(
    run: RunFolder,
    sets: Mapping[str, Responses],
    models: Models,
    *,
    meta: Mapping[str, Any],
    baselines: Sequence[str],
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> dict[str, Metric]:
    """Scores the responses to each dataset, writes metrics.json and `scores/<dataset>.jsonl`, and prints it all."""
    reports = {
        name: [
            response_report(
                given,
                models,
                title=f"test/{name}",
                scores_path=run.path / "scores" / f"{name}.jsonl",
                baselines=baselines,
                num_resamples=num_resamples,
                num_examples=num_examples,
                progress=True,
            )
        ]
        for name, given in sets.items()
    }
    if len(reports) > 1:
        show(transfer_table({name: report.metrics for name, [report] in reports.items()}))
    return conclude_reports(run, reports, meta=meta)
