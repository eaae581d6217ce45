"""Evaluates a cascade on one benchmark: chooses its band on rows that are not tested, then compares budgets.

The expensive detector judges the rows of the widest band once; the result of every narrower band follows from these.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_modules.build import Benchmark
from faithkit.detector import JUDGE
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import write_config
from faithkit.metrics.classification import measure_labels
from faithkit.metrics.outcomes import join_outcomes
from faithkit.pages.page_tables import format_p, format_percent, new_number_table
from faithkit.records import Example, Prediction
from faithkit.reports.report import Report
from faithkit.scores.board import Board
from faithkit.statistics.metric import Metric
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers
from faithkit_workflows.detectors.cascade import (
    NOTHING,
    Band,
    Cascade,
    RecordedPredictions,
    choose_band_by_budget,
    choose_band_by_precision,
)
from faithkit_workflows.detectors.configured import prompt_examples, read_fitting_rows
from faithkit_workflows.detectors.loading import LoadedDetector, cascade_options, load_checkpoint, load_engine

BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the table, up to the largest budget that is judged
MAIN_METRIC = "macro_f1"
CHEAP_ALONE, CHOSEN = "0", "chosen"  # keys of bands, besides budgets in percent: 5, 10, ...
RESULT_NAMES = {CHEAP_ALONE: "checkpoint alone", CHOSEN: "the cascade"}
DETECTOR_FILE = "detector.yaml"
log = logging.getLogger("faithkit")


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

    @property
    def name(self) -> str:
        """The name of its row in the table."""
        return RESULT_NAMES.get(self.key, f"{self.key}%")


@dataclass(frozen=True, slots=True)
class CascadeRun:
    """A cascade's predictions for a benchmark's examples, and those of other budgets.

    Args:
        loaded: The cascade, as recorded predictions.
        results: Of the table: the cheap detector alone first, the cascade last.
    """

    loaded: LoadedDetector
    results: list[BandResult]


def run_cascade(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> CascadeRun:
    """Predicts with both detectors, with the expensive one in the widest band only."""
    cheap = load_checkpoint(config)
    expensive = load_engine(config, JUDGE, prompt_examples(config, benchmark))

    def judge(name: str, examples: Sequence[Example], loaded: LoadedDetector) -> list[Prediction]:
        path, chunk_size = run.predictions / f"{benchmark.name}-{name}.jsonl", config["save_every_num_rows"]
        return write_answers(path, examples, DetectorAnswerer(loaded.detector), chunk_size=chunk_size)

    fitting_rows, source = read_fitting_rows(config, benchmark)
    on_fitting_rows = judge("fit_on-checkpoint", fitting_rows, cheap) if fitting_rows else []
    bands = choose_bands(config, fitting_rows, on_fitting_rows)
    cheap_predictions = judge("checkpoint", benchmark.examples, cheap)
    in_widest_band = [
        example
        for example, prediction in zip(benchmark.examples, cheap_predictions, strict=True)
        if any(band.contains(prediction) for band in bands.values())
    ]
    log.info("the judge judges %s of %s rows", f"{len(in_widest_band):,}", f"{len(benchmark.examples):,}")
    expensive_predictions = judge("judge", in_widest_band, expensive)
    results = [
        _apply_band(key, band, benchmark.examples, cheap_predictions, expensive_predictions)
        for key, band in bands.items()
    ]
    band = results[-1].band
    _write_detector_file(run, config, band)
    log.info("the band is %.4g to %.4g, %s%s", band.low, band.high, band.chosen, f": {source}" if source else "")
    recorded = RecordedPredictions(results[-1].predictions)
    return CascadeRun(LoadedDetector(recorded, [*cheap.models, *expensive.models], expensive.log_usage), results)


def choose_bands(
    config: Mapping[str, Any], fitting_rows: Sequence[Example], predictions: Sequence[Prediction]
) -> dict[str, Band]:
    """Chooses the bands of the table on the fitting rows: an empty one, those of other budgets, and the cascade's."""
    options = cascade_options(config)
    if options.band is not None:
        chosen = Band(low=options.band[0], high=options.band[1])
    elif options.budget is not None:
        chosen = choose_band_by_budget(predictions, options.budget)
    elif options.precision is not None:
        chosen = choose_band_by_precision(fitting_rows, predictions, options.precision)
    else:
        raise UserError("a cascade needs a budget, a precision or a band", hint="cascade.budget=0.2")
    largest = options.max_budget or options.budget or 0.0
    bands = {CHEAP_ALONE: NOTHING}
    if fitting_rows:
        budgets = [budget for budget in BUDGETS if budget <= largest and budget != options.budget]
        bands |= {f"{100 * budget:.0f}": choose_band_by_budget(predictions, budget) for budget in budgets}
    return bands | {CHOSEN: chosen}


def _apply_band(
    key: str, band: Band, examples: Sequence[Example], cheap: Sequence[Prediction], expensive: Sequence[Prediction]
) -> BandResult:
    first, second = (RecordedPredictions({one.id: one for one in predictions}) for predictions in (cheap, expensive))
    cascade = Cascade(first, second, band)
    predictions = {one.id: one for one in cascade.predict_examples(examples)}
    return BandResult(key, band, predictions, cascade.num_asked)


def _write_detector_file(run: RunFolder, config: Mapping[str, Any], band: Band) -> None:
    """Writes the cascade as a detector file, unless its band is empty."""
    if band.is_empty:
        return
    blocks = {name: config[name] for name in ("checkpoint", "engine", "judge")}
    write_config(run.path / DETECTOR_FILE, blocks | {"cascade": {"band": [band.low, band.high]}})


def add_cascade_costs(
    report: Report, examples: Sequence[Example], cascade_run: CascadeRun, *, title: str, num_resamples: int
) -> Report:
    """Adds the cost and gain of each budget: rows judged, macro-F1, and the difference to the checkpoint."""
    metrics: dict[str, Metric] = {}
    board, rows = Board(title, num_resamples=num_resamples), []
    for result in cascade_run.results:
        prefix = f"cascade/{result.key}/"
        fraction = result.num_asked / len(examples)
        metrics[f"{prefix}asked"] = Metric(value=fraction, n=len(examples))
        board.add(result.key, measure_labels(join_outcomes(examples, result.predictions)))
        value = board.metrics(result.key)[MAIN_METRIC]
        metrics[f"{prefix}{MAIN_METRIC}"] = value
        cells = ["-", "-"]
        if result is not cascade_run.results[0]:
            difference = board.subtract(result.key, cascade_run.results[0].key)[MAIN_METRIC]
            named = difference.to_metrics(f"checkpoint_{MAIN_METRIC}")
            metrics |= {f"{prefix}{name}": metric for name, metric in named.items()}
            cells = [format_percent(difference.metric), format_p(difference.p_value)]
        rows.append([result.name, f"{result.num_asked:,} ({fraction:.1%})", format_percent(value), *cells])
    band = cascade_run.results[-1].band
    place = "nowhere" if band.is_empty else f"at scores from {band.low:.4g} to {band.high:.4g}"
    lines = [f"the cascade: the judge decides {place}, {band.chosen}"]
    if band.is_chosen:
        lines.append("bands are chosen on benchmark.fit_on, of which no row is tested; p values are not corrected")
    title = f"{title}: rows sent to the judge, and the gain, percent"
    heads = ("rows judged", "macro-F1", "cascade - checkpoint", "p")
    table = new_number_table(title, "budget", heads, rows, caption=lines, no_wrap=["p"])
    place_of_table = 0 if report.headline else 1
    before = report.headline or report.tables[:place_of_table]
    tables = report.tables[place_of_table:]
    return replace(report, headline=(*before, table), tables=tables, metrics=report.metrics | metrics)
