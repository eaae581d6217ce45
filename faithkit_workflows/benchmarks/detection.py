"""Evaluates a detector on one benchmark: reads examples, predicts (or reads given predictions), computes metrics.

A cascade's band is chosen on rows that are not tested. The expensive detector judges the rows of the widest band once;
the result of every narrower band follows from these.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from data_modules.build import Benchmark, read_benchmark
from data_modules.datasets.pairs import Pairs
from faithkit.detector import JUDGE, Detector
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder, write_config
from faithkit.metrics.classification import align_predictions, evaluate_labels, join_outcomes
from faithkit.packages import environment
from faithkit.records import Example, Prediction
from faithkit.reports.judging_report import official_report, prefix_report
from faithkit.reports.label_tables import columns_report
from faithkit.reports.part_reports import conversation_report, report_suppression, set_report
from faithkit.reports.report import Cell, Provenance, Report, Row, difference_cells, merge_reports, score_table
from faithkit.reports.write_reports import (
    EvaluationResult,
    collect_samples,
    detection_reports,
    write_benchmark_results,
)
from faithkit.scores.board import Board
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.metric import Metric
from faithkit_workflows.answering.retrieval import retrieve
from faithkit_workflows.answering.write_answers import (
    judge_rows,
    predict_and_write,
    read_provenance,
    write_given,
)
from faithkit_workflows.benchmarks.configured import load_configured, prompt_examples, read_fitting, read_fitting_rows
from faithkit_workflows.benchmarks.rationale_scores import score_rationales
from faithkit_workflows.detectors.cascade import (
    GIVEN,
    NOTHING,
    Band,
    Cascade,
    RecordedPredictions,
    choose_band_by_budget,
    choose_band_by_precision,
)
from faithkit_workflows.detectors.loading import (
    LoadedDetector,
    cascade_options,
    kind_of,
    load_checkpoint,
    load_engine,
    log_models,
)
from judge.options import VERDICT

MAIN_METRIC = "macro_f1"
CHEAP_ALONE, CHOSEN = "0", "chosen"  # keys of bands, besides budgets in percent: 5, 10, ...


@dataclass(frozen=True, slots=True)
class BandResult:
    """One band of the table with the cascade's predictions.

    Args:
        key: The beginning of the names of its metrics.
    """

    key: str
    band: Band
    predictions: Mapping[str, Prediction]
    num_asked: int


def run_cascade(
    run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark
) -> tuple[LoadedDetector, list[BandResult]]:
    """Predicts with both detectors, with the expensive one in the widest band only.

    Returns the cascade, as recorded predictions, and the rows of the table: the cheap detector alone first, the cascade
    last.
    """
    options = cascade_options(config)
    cheap = load_checkpoint(config)
    expensive = load_engine(config, JUDGE, prompt_examples(config, benchmark))
    judge, name = partial(judge_rows, run, config), benchmark.name
    fitting_rows, source = read_fitting_rows(config, benchmark)
    on_fitting_rows = judge(f"{name}-fit_on-checkpoint", fitting_rows, cheap) if fitting_rows else []
    if options.band is not None:
        chosen = Band(low=options.band[0], high=options.band[1])
    elif options.budget is not None:
        chosen = choose_band_by_budget(on_fitting_rows, options.budget)
    elif options.precision is not None:
        chosen = choose_band_by_precision(fitting_rows, on_fitting_rows, options.precision)
    else:
        raise UserError("a cascade needs a budget, a precision or a band", hint="cascade.budget=0.2")
    largest = options.max_budget or options.budget or 0.0
    bands = {CHEAP_ALONE: NOTHING}
    if fitting_rows:
        budgets = [one for one in (0.05, 0.1, 0.2, 0.5, 1.0) if one <= largest and one != options.budget]
        bands |= {f"{100 * budget:.0f}": choose_band_by_budget(on_fitting_rows, budget) for budget in budgets}
    bands |= {CHOSEN: chosen}
    cheap_predictions = judge(f"{name}-checkpoint", benchmark.examples, cheap)
    in_widest_band = [
        example
        for example, prediction in zip(benchmark.examples, cheap_predictions, strict=True)
        if any(band.contains(prediction) for band in bands.values())
    ]
    log.info("the judge judges %s of %s rows", f"{len(in_widest_band):,}", f"{len(benchmark.examples):,}")
    expensive_predictions = judge(f"{name}-judge", in_widest_band, expensive)
    first, second = (
        RecordedPredictions({one.id: one for one in predictions})
        for predictions in (cheap_predictions, expensive_predictions)
    )
    results = []
    for key, band in bands.items():
        cascade = Cascade(first, second, band)
        predictions = {one.id: one for one in cascade.predict_examples(benchmark.examples)}
        results.append(BandResult(key, band, predictions, cascade.num_asked))
    band = results[-1].band
    if not band.is_empty:
        blocks = {name: config[name] for name in ("checkpoint", "engine", "judge")}
        write_config(run.path / "detector.yaml", blocks | {"cascade": {"band": [band.low, band.high]}})
    log.info("the band is %.4g to %.4g, %s%s", band.low, band.high, band.chosen, f": {source}" if source else "")
    recorded = RecordedPredictions(results[-1].predictions)
    return LoadedDetector(recorded, [*cheap.models, *expensive.models], expensive.log_usage), results


def add_cascade_costs(
    report: Report, examples: Sequence[Example], results: Sequence[BandResult], *, title: str, num_resamples: int
) -> Report:
    """Adds the cost and gain of each budget: rows judged, macro-F1, and the difference to the checkpoint."""
    metrics: dict[str, Metric] = {}
    board, rows = Board(title, num_resamples=num_resamples), list[Row]()
    for result in results:
        prefix = f"cascade/{result.key}/"
        fraction = result.num_asked / len(examples)
        metrics[f"{prefix}asked"] = Metric(value=fraction, n=len(examples))
        board.add(result.key, evaluate_labels(join_outcomes(examples, result.predictions)))
        value = board.metrics(result.key)[MAIN_METRIC]
        metrics[f"{prefix}{MAIN_METRIC}"] = value
        cells: dict[str, Cell] = {"asked": f"{result.num_asked:,} ({fraction:.1%})", MAIN_METRIC: value}
        if result is not results[0]:
            difference = board.subtract(result.key, results[0].key)[MAIN_METRIC]
            named = difference.to_metrics(f"checkpoint_{MAIN_METRIC}")
            metrics |= {f"{prefix}{name}": metric for name, metric in named.items()}
            cells |= difference_cells(difference)
        names = {CHEAP_ALONE: "checkpoint alone", CHOSEN: "the cascade"}
        rows.append((names.get(result.key, f"{result.key}%"), cells))
    band = results[-1].band
    place = "nowhere" if band.is_empty else f"at scores from {band.low:.4g} to {band.high:.4g}"
    lines = [f"the cascade: the judge decides {place}, {band.chosen}"]
    if band.chosen != GIVEN:
        lines.append("bands are chosen on benchmark.fit_on, of which no row is tested; p values are not corrected")
    title = f"{title}: rows sent to the judge, and the gain, percent"
    columns = {"asked": "rows judged", MAIN_METRIC: "macro-F1", "difference": "cascade - checkpoint", "p": "p"}
    table = score_table(title, "budget", columns, rows, caption=lines, no_wrap=["p"])
    place_of_table = 0 if report.headline else 1
    before = report.headline or report.tables[:place_of_table]
    tables = report.tables[place_of_table:]
    return replace(report, headline=(*before, table), tables=tables, metrics=report.metrics | metrics)


log = logging.getLogger("faithkit")


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the examples, predicts them, and writes metrics and reports."""
    block, judge, checkpoint = config["benchmark"], config.get("judge") or {}, config["checkpoint"]
    # The reports of a dataset's own protocol parse written verdicts, as the original scripts do. In HaluEval's the
    # dataset leaves out the knowledge of questions and dialogues and takes one response per row, drawn with a seed
    # (the original script has none).
    named = "halueval" in (block["name"], block.get("dataset"))
    is_official_halueval = named and block["options"].get("official") is True
    if (is_official_halueval or block.get("official")) and judge.get("ask") == VERDICT:
        config = {**config, "judge": {**judge, "written": True}}
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    numbered: dict[str, Any] = {}
    if block["name"] == Pairs.name and checkpoint and given is None and kind_of(checkpoint).numbers_passages:
        numbered = {"options": {**block["options"], "numbered": True}}  # as the detector was trained
    benchmark = read_benchmark({**block, **numbered}, seed=config["seed"])
    if retrieved := retrieve(config, benchmark.examples):
        summary = {**benchmark.summary, "retrieval": retrieved[1]}
        benchmark = replace(benchmark, examples=retrieved[0], summary=summary)
    predictions, origin, detector, bands = _predict(run, config, benchmark, given)
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    resampling = {"num_resamples": config["num_resamples"]}
    if block["name"] == "suppression":
        metrics = report_suppression(
            run,
            benchmark.examples,
            list(predictions.values()),
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            name=benchmark.name,
            origin=origin,
            **resampling,
        )
        return EvaluationResult(metrics)
    fitting = read_fitting(run, config, benchmark, detector, origin.models)
    reports = detection_reports(
        {benchmark.name: (benchmark.examples, list(predictions.values()))},
        meta=meta,
        baseline_data=fitting,
        num_examples=config["num_examples"],
        **resampling,
        origins={benchmark.name: origin},
    )
    # To the shown report come the costs of a cascade, metrics by column, a judge's rationales, and official protocols.
    found, title, by = reports[benchmark.name], f"test/{benchmark.name}", block.get("by") or []
    shown = -1 if found[-1].tables else 0  # the report of spans comes after that of labels, and replaces it
    if bands is not None:
        found[shown] = add_cascade_costs(found[shown], benchmark.examples, bands, title=title, **resampling)
    rows = benchmark.examples, predictions
    dataset = "" if block["path"] == EMBEDDED else benchmark.name
    others = [
        set_report(*rows, title=title, dataset=dataset, fitting=fitting, **resampling),
        conversation_report(*rows, title=title, **resampling),
        columns_report(*rows, by, title=title, **resampling) if by else None,
        score_rationales(*rows, block, dataset=dataset, **resampling),
        official_report(*rows, **resampling) if is_official_halueval else None,
        prefix_report(*rows, **resampling) if block.get("official") else None,
    ]
    for other in others:
        found[shown] = merge_reports(found[shown], other) if other else found[shown]
    return write_benchmark_results(run, reports, config, benchmark.summary, collect_samples(reports))


def _predict(
    run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark, given: Mapping[str, Prediction] | None
) -> tuple[Mapping[str, Prediction], Provenance, Detector | None, list[BandResult] | None]:
    """Predicts with the detector, or the cascade, of the configuration; or takes the given predictions.

    Returns them with their provenance, the detector that may judge the rows to fit on, and the bands of a cascade.
    """
    if given is not None:
        align_predictions(benchmark.examples, given, judged=False)  # reports missing predictions before any work
        path, checkpoint = config["predictions"], config["checkpoint"]
        origin = read_provenance(path, benchmark.name, benchmark.examples, checkpoint=checkpoint)
        path = run.predictions / f"{benchmark.name}.jsonl"
        write_given(path, benchmark.examples, given, texts=config["save_texts"])
        return given, origin, None, None
    bands = None
    if cascade_options(config).is_on:
        loaded, bands = run_cascade(run, config, benchmark)
    else:
        loaded = load_configured(config, benchmark)
    log_models(loaded)
    predictions, origin = predict_and_write(run, config, benchmark.name, benchmark.examples, loaded)
    if num_missed := getattr(loaded.detector, "num_unlocated", 0):
        log.info("quoted parts that are not in their responses and mark nothing: %s", f"{num_missed:,}")
    # A cascade would judge the rows of fit_on as well, only for a second threshold.
    return predictions, origin, None if bands else loaded.detector, bands
