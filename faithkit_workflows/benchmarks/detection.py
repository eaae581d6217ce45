"""Evaluates a detector on one benchmark: reads examples, predicts (or reads given predictions), computes metrics."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.build import Benchmark, read_benchmark
from data_modules.datasets.pairs import Pairs
from faithkit.baselines.simple_detectors import BaselineData
from faithkit.detector import Detector
from faithkit.embedded_name import EMBEDDED, display_name
from faithkit.environment import environment
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.outcomes import align_predictions
from faithkit.published.figures import are_comparable
from faithkit.records import Prediction
from faithkit.reports.judging_report import official_report, prefix_report
from faithkit.reports.label_tables import columns_report
from faithkit.reports.report import Provenance, Report, merge_reports
from faithkit.reports.set_report import set_report
from faithkit.reports.suppression_report import report_suppression
from faithkit.reports.write_reports import (
    EvaluationResult,
    ReportOptions,
    collect_samples,
    detection_reports,
    write_run_results,
)
from faithkit_workflows.answering.retrieval import with_knowledge
from faithkit_workflows.answering.write_answers import predict_and_write, read_provenance, write_given
from faithkit_workflows.benchmarks.cascade_benchmark import CascadeRun, add_cascade_costs, run_cascade
from faithkit_workflows.benchmarks.rationale_scores import score_rationales
from faithkit_workflows.corpus.corpus_report import report_corpus
from faithkit_workflows.corpus.corpus_rows import CorpusRows
from faithkit_workflows.detectors.configured import load_configured, read_fitting
from faithkit_workflows.detectors.loading import cascade_options, kind_of, log_models
from judge.options import VERDICT

HALUEVAL = "halueval"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class _Predicted:
    """Predictions for a benchmark's examples with their provenance.

    Args:
        detector: The detector that made them; None for given predictions and for a cascade.
        cascade: The cascade that made them.
    """

    predictions: Mapping[str, Prediction]
    origin: Provenance
    detector: Detector | None = None
    cascade: CascadeRun | None = None


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the examples, predicts them, and writes metrics and reports."""
    config = with_written_verdicts(config)
    block = config["benchmark"]
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = with_knowledge(config, read_benchmark(_block_to_read(config)))
    if block["name"] == "analysis":
        _describe_corpus(run, config, benchmark)
        return EvaluationResult({})
    if given is None:
        predicted = _predict(run, config, benchmark)
    else:
        align_predictions(benchmark.examples, given, judged=False)  # reports missing predictions before any work
        predicted = _describe_given(given, config, benchmark)
        path = run.predictions / f"{benchmark.name}.jsonl"
        write_given(path, benchmark.examples, given, texts=config["save_texts"])
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    if block["name"] == "suppression":
        metrics = report_suppression(
            run,
            benchmark.examples,
            list(predicted.predictions.values()),
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            name=benchmark.name,
            num_resamples=config["num_resamples"],
            origin=predicted.origin,
        )
        return EvaluationResult(metrics)
    fitting = read_fitting(run, config, benchmark, predicted.detector, predicted.origin.models)
    reports = detection_reports(
        {benchmark.name: (benchmark.examples, list(predicted.predictions.values()))},
        meta=meta,
        baseline_data=fitting,
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
        origins={benchmark.name: predicted.origin},
    )
    _add_reports(reports[benchmark.name], config, benchmark, predicted, fitting)
    return EvaluationResult(write_run_results(run, reports, meta=meta), collect_samples(reports))


def _block_to_read(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the block `benchmark`, with numbered passages for a detector that was trained on these."""
    block, checkpoint = config["benchmark"], config["checkpoint"]
    if block["name"] != Pairs.name or not checkpoint or config["predictions"]:
        return block
    if not kind_of(checkpoint).numbers_passages:
        return block
    return {**block, "options": {**block["options"], "numbered": True}}


def _describe_corpus(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> None:
    """Writes the statistics of a corpus; nothing is predicted."""
    block, options = config["benchmark"], ReportOptions.of(config)
    # The paper's figures describe the answers of its models: no other data are comparable.
    has_figures = block["path"] != EMBEDDED and are_comparable(benchmark.examples)
    report_corpus(
        CorpusRows(overlap=False).add_all(benchmark.examples),
        run.path,
        full=False,
        title=display_name(block["dataset"], block["path"]),
        plots=block["plots"],
        dataset=block["dataset"] or "" if has_figures else "",
        page=Path(options.page).expanduser() if options.page else None,
        verbose=options.verbose,
    )


def _describe_given(given: Mapping[str, Prediction], config: Mapping[str, Any], benchmark: Benchmark) -> _Predicted:
    path, checkpoint = config["predictions"], config["checkpoint"]
    return _Predicted(given, read_provenance(path, benchmark.name, benchmark.examples, checkpoint=checkpoint))


def _predict(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> _Predicted:
    """Predicts with the detector, or the cascade, of the configuration."""
    cascade = run_cascade(run, config, benchmark) if cascade_options(config).is_on else None
    loaded = cascade.loaded if cascade else load_configured(config, benchmark)
    log_models(loaded)
    predictions, origin = predict_and_write(run, config, benchmark.name, benchmark.examples, loaded)
    if num_missed := getattr(loaded.detector, "num_unlocated", 0):
        log.info("quoted parts that are not in their responses and mark nothing: %s", f"{num_missed:,}")
    # A cascade would judge the rows of fit_on as well, only for a second threshold.
    return _Predicted(predictions, origin, None if cascade else loaded.detector, cascade)


def _add_reports(
    reports: list[Report],
    config: Mapping[str, Any],
    benchmark: Benchmark,
    predicted: _Predicted,
    fitting: BaselineData,
) -> None:
    """Adds to the shown report the costs of a cascade, metrics by column, a judge's rationales, official protocols."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    title, by = f"test/{benchmark.name}", block.get("by") or []
    shown = -1 if reports[-1].tables else 0  # the report of spans comes after that of labels, and replaces it
    if predicted.cascade is not None:
        reports[shown] = add_cascade_costs(
            reports[shown], benchmark.examples, predicted.cascade, title=title, num_resamples=num_resamples
        )
    rows = benchmark.examples, predicted.predictions
    dataset = "" if block["path"] == EMBEDDED else benchmark.name
    others = [
        set_report(*rows, title=title, dataset=dataset, fitting=fitting, num_resamples=num_resamples),
        columns_report(*rows, by, title=title, num_resamples=num_resamples) if by else None,
        score_rationales(*rows, block, dataset=dataset, num_resamples=num_resamples),
        official_report(*rows, num_resamples=num_resamples) if is_official_halueval(block) else None,
        prefix_report(*rows, num_resamples=num_resamples) if block.get("official") else None,
    ]
    for other in others:
        reports[shown] = merge_reports(reports[shown], other) if other else reports[shown]


def is_official_halueval(block: Mapping[str, Any]) -> bool:
    """Returns whether `benchmark.options.official=true` asks for HaluEval's own protocol."""
    return HALUEVAL in (block["name"], block.get("dataset")) and block["options"].get("official") is True


def with_written_verdicts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lets a judge write its verdict, where a dataset's own protocol is asked for and the verdict would be weighed.

    In HaluEval's the dataset leaves out the knowledge of questions and dialogues and takes one response per row, drawn
    with a seed (the original script has none). The reports parse the verdicts as the original scripts do.
    """
    judge, block = config.get("judge") or {}, config["benchmark"]
    if not (is_official_halueval(block) or block.get("official")) or judge.get("ask") != VERDICT:
        return config
    return {**config, "judge": {**judge, "written": True}}
