"""A detector on one benchmark: read, predict (or take given predictions), score."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.build import Benchmark, read_benchmark
from data_modules.datasets.pairs import Pairs
from faithkit.detector import Detector
from faithkit.embedded_name import EMBEDDED, told_name
from faithkit.environment import environment
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import TAGGER
from faithkit.files.run_folder import RunFolder
from faithkit.published.figures import are_comparable
from faithkit.records import Prediction
from faithkit.reports.judging import official_report
from faithkit.reports.labels import columns_report
from faithkit.reports.provenance import Provenance
from faithkit.reports.report import Report, merge_reports
from faithkit.reports.suppression import report_suppression
from faithkit.reports.write_reports import (
    EvaluationResult,
    ReportOptions,
    collect_samples,
    detection_reports,
    write_run_results,
)
from faithkit_workflows.benchmarks.cascade_benchmark import CascadeRun, run_cascade, with_costs
from faithkit_workflows.benchmarks.official_halueval import as_official, is_official
from faithkit_workflows.benchmarks.rationale_scores import score_rationales
from faithkit_workflows.benchmarks.retrieval import with_knowledge
from faithkit_workflows.corpus.report import report_corpus
from faithkit_workflows.detectors.baseline_fitting import read_fitting
from faithkit_workflows.detectors.loading import cascade_of, kind_of, load_configured, tell_model
from faithkit_workflows.detectors.origins import judge_examples, origin_of_file, write_given

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class _Judged:
    """Predictions for a benchmark's examples, and where they are from.

    Args:
        detector: Made them; None where they are given, or a cascade's.
        cascade: Made them, if it did.
    """

    predictions: Mapping[str, Prediction]
    origin: Provenance
    detector: Detector | None = None
    cascade: CascadeRun | None = None


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Examples, predictions, metrics."""
    config = as_official(config)
    block = config["benchmark"]
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = with_knowledge(config, read_benchmark(_as_read(config)))
    if block["name"] == "analysis":
        _analyse(run, config, benchmark)
        return EvaluationResult({})
    judged = _judge(run, config, benchmark) if given is None else _judged_before(given, config, benchmark)
    if given is not None:
        path, texts = run.predictions / f"{benchmark.name}.jsonl", config.get("save_texts", True)
        write_given(path, benchmark.examples, given, texts=texts)
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    if block["name"] == "suppression":
        metrics = report_suppression(
            run,
            benchmark.examples,
            list(judged.predictions.values()),
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            name=benchmark.name,
            num_resamples=config["num_resamples"],
            origin=judged.origin,
        )
        return EvaluationResult(metrics)
    fitting = read_fitting(run, config, benchmark, judged.detector, judged.origin.models)
    reports = detection_reports(
        {benchmark.name: (benchmark.examples, list(judged.predictions.values()))},
        meta=meta,
        fitting=fitting,
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
        origins={benchmark.name: judged.origin},
    )
    _add_reports(reports[benchmark.name], config, benchmark, judged)
    return EvaluationResult(write_run_results(run, reports, meta=meta), collect_samples(reports))


def _as_read(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Has a tagger read lists of passages as it was trained to."""
    block, checkpoint = config["benchmark"], config["checkpoint"]
    is_asked = block["name"] == Pairs.name and checkpoint and not config["predictions"]
    if not is_asked or kind_of(checkpoint) != TAGGER:
        return block
    return {**block, "options": {**block["options"], "numbered": True}}


def _analyse(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> None:
    """Shows a corpus itself; nothing is judged."""
    block, telling = config["benchmark"], ReportOptions.of(config)
    # The paper's figures are about its own models' answers: neither the embedded corpus's nor one's own.
    own = block["path"] == EMBEDDED or not are_comparable(benchmark.examples)
    dataset = "" if own else block["dataset"] or ""
    report_corpus(
        benchmark.examples,
        run.path,
        title=told_name(block["dataset"], block["path"]),
        plots=block["plots"],
        dataset=dataset,
        page=Path(telling.page).expanduser() if telling.page else None,
        verbose=telling.verbose,
    )


def _judged_before(given: Mapping[str, Prediction], config: Mapping[str, Any], benchmark: Benchmark) -> _Judged:
    path, checkpoint = config["predictions"], config["checkpoint"]
    return _Judged(given, origin_of_file(path, benchmark.name, benchmark.examples, checkpoint=checkpoint))


def _judge(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> _Judged:
    """Has the examples judged by the detector, or the cascade, that the configuration describes."""
    cascade = run_cascade(run, config, benchmark) if cascade_of(config).is_on else None
    loaded = cascade.loaded if cascade else load_configured(config, benchmark)
    tell_model(loaded)
    path, portion = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
    texts = config.get("save_texts", True)  # runs of older versions have no such key
    predictions, origin = judge_examples(
        path, benchmark.name, benchmark.examples, loaded, at_a_time=portion, texts=texts
    )
    if missed := getattr(loaded.detector, "num_unlocated", 0):
        log.info("quoted parts that do not stand in their responses, and so mark nothing: %s", f"{missed:,}")
    # A cascade would ask the judge about the rows of fit_on too, for the sake of a second threshold.
    return _Judged(predictions, origin, None if cascade else loaded.detector, cascade)


def _add_reports(reports: list[Report], config: Mapping[str, Any], benchmark: Benchmark, judged: _Judged) -> None:
    """Adds what else there is to the report that is shown: costs of a cascade, parts by column, a judge's reasons."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    title, by = f"test/{benchmark.name}", block.get("by") or []  # runs of older versions have no such key
    shown = -1 if reports[-1].tables else 0  # spans are reported behind labels, and shown in their place
    if judged.cascade is not None:
        reports[shown] = with_costs(
            reports[shown], benchmark.examples, judged.cascade, title=title, num_resamples=num_resamples
        )
    rows = benchmark.examples, judged.predictions
    dataset = "" if block["path"] == EMBEDDED else benchmark.name
    others = [
        columns_report(*rows, by, title=title, num_resamples=num_resamples) if by else None,
        score_rationales(*rows, block, dataset=dataset, num_resamples=num_resamples),
        official_report(*rows, num_resamples=num_resamples) if is_official(block) else None,
    ]
    for other in others:
        reports[shown] = merge_reports(reports[shown], other) if other else reports[shown]
