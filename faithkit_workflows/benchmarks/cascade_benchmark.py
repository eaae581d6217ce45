"""A cascade on one benchmark: its band is chosen on rows that are not tested, then budgets are compared.

The dear detector is asked once about the rows of the widest band; every narrower budget is read off its replies.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from data_modules.build import Benchmark
from faithkit.errors import UserError
from faithkit.files.model_folder import JUDGE
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import write_config
from faithkit.metrics.classification import classification_metrics, compare_predictions
from faithkit.pages.tables import escape_terminal, format_p, format_percent, new_number_table
from faithkit.records import Example, Prediction
from faithkit.reports.report import Report
from faithkit.statistics.metric import Metric
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers
from faithkit_workflows.detectors.baseline_fitting import read_fitting_rows
from faithkit_workflows.detectors.cascade import NOTHING, Band, Cascade, Recorded, band_of_budget, band_of_precision
from faithkit_workflows.detectors.loading import Loaded, cascade_of, load_checkpoint, load_engine

BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the table, as far as so many rows are asked
HEADLINE = "macro_f1"
ALONE, CHOSEN = "0", "chosen"  # keys of bands, beside those of budgets, in percent: 5, 10, ...
NAMES = {ALONE: "checkpoint alone", CHOSEN: "the cascade"}
DETECTOR_FILE = "detector.yaml"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Compared:
    """A band of the table, with what the cascade says by it.

    Args:
        key: Begins the names of its metrics.
    """

    key: str
    band: Band
    said: Mapping[str, Prediction]
    num_asked: int

    @property
    def name(self) -> str:
        """Names the row of the table."""
        return NAMES.get(self.key, f"{self.key}%")


@dataclass(frozen=True, slots=True)
class CascadeRun:
    """A cascade's predictions for a benchmark's examples, and those by other budgets.

    Args:
        loaded: The cascade itself, by what it has said.
        rows: Of the table: the cheap detector alone first, the cascade itself last.
    """

    loaded: Loaded
    rows: list[Compared]


def run_cascade(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> CascadeRun:
    """Asks both detectors, the dear one no more than the widest band needs; resumed, it asks what is missing."""
    cheap, dear = load_checkpoint(config), load_engine(config, JUDGE, benchmark)

    def judge(name: str, examples: Sequence[Example], loaded: Loaded) -> list[Prediction]:
        path = run.predictions / f"{benchmark.name}-{name}.jsonl"
        return write_answers(path, examples, DetectorAnswerer(loaded.detector), at_a_time=config["save_every_num_rows"])

    fitting, where = read_fitting_rows(config, benchmark)
    on_fitting = judge("fit_on-checkpoint", fitting, cheap) if fitting else []
    bands = choose_bands(config, fitting, on_fitting)
    first = judge("checkpoint", benchmark.examples, cheap)
    widest = [
        example
        for example, said in zip(benchmark.examples, first, strict=True)
        if any(band.asks(said) for band in bands.values())
    ]
    log.info("the judge is asked about %s of %s rows", f"{len(widest):,}", f"{len(benchmark.examples):,}")
    asked = judge("judge", widest, dear)
    rows = [_compared(key, band, benchmark.examples, first, asked) for key, band in bands.items()]
    own = rows[-1].band
    _write_detector(run, config, own)
    log.info("the band is %.4g to %.4g, %s%s", own.low, own.high, own.chosen, f": {where}" if where else "")
    return CascadeRun(Loaded(Recorded(rows[-1].said), [*cheap.models, *dear.models], dear.tell), rows)


def choose_bands(config: Mapping[str, Any], fitting: Sequence[Example], said: Sequence[Prediction]) -> dict[str, Band]:
    """Chooses the bands of the table, by key, on the fitting rows: none, those of other budgets, the cascade's own."""
    options = cascade_of(config)
    if options.band is not None:
        own = Band(low=options.band[0], high=options.band[1])
    elif options.budget is not None:
        own = band_of_budget(said, options.budget)
    elif options.precision is not None:
        own = band_of_precision(fitting, said, options.precision)
    else:
        raise UserError("a cascade needs a budget, a precision or a band", hint="cascade.budget=0.2")
    largest = options.max_budget or options.budget or 0.0
    bands = {ALONE: NOTHING}
    if fitting:
        budgets = [budget for budget in BUDGETS if budget <= largest and budget != options.budget]
        bands |= {f"{100 * budget:.0f}": band_of_budget(said, budget) for budget in budgets}
    return bands | {CHOSEN: own}


def _compared(
    key: str, band: Band, examples: Sequence[Example], cheap: Sequence[Prediction], dear: Sequence[Prediction]
) -> Compared:
    first, second = (Recorded({one.id: one for one in said}) for said in (cheap, dear))
    cascade = Cascade(first, second, band)
    found = {one.id: one for one in cascade.predict_examples(examples)}
    return Compared(key, band, found, cascade.num_asked)


def _write_detector(run: RunFolder, config: Mapping[str, Any], band: Band) -> None:
    """Writes the cascade as a file that whatever takes a detector takes; an empty band leaves the checkpoint alone."""
    if band.is_empty:
        return
    own = {name: config[name] for name in ("checkpoint", "engine", "judge")}
    write_config(run.path / DETECTOR_FILE, own | {"cascade": {"band": [band.low, band.high]}})


def with_costs(
    report: Report, examples: Sequence[Example], found: CascadeRun, *, title: str, num_resamples: int
) -> Report:
    """Adds to a report what each budget costs and buys: rows asked, macro-F1, and the difference to asking nothing."""
    metrics: dict[str, Metric] = {}
    alone = found.rows[0].said
    heads = ("asked", "macro-F1", "less the checkpoint alone", "p")
    title = f"{title}: rows that the judge is asked, and what that buys, percent"
    table = new_number_table(title, "budget", heads, no_wrap=["p"])
    for row in found.rows:
        prefix = f"cascade/{row.key}/"
        share = row.num_asked / len(examples)
        metrics[f"{prefix}asked"] = Metric(value=share, n=len(examples))
        value = classification_metrics(examples, row.said, num_resamples=num_resamples).metrics[HEADLINE]
        metrics[f"{prefix}{HEADLINE}"] = value
        cells = ["-", "-"]
        if row is not found.rows[0]:
            one = compare_predictions(examples, row.said, alone, num_resamples=num_resamples)[HEADLINE]
            named = one.named(f"checkpoint_{HEADLINE}")
            metrics |= {f"{prefix}{name}": metric for name, metric in named.items()}
            cells = [format_percent(one.metric), format_p(one.p_value)]
        asked = f"{row.num_asked:,} ({share:.1%})"
        table.add_row(Text(escape_terminal(row.name)), asked, format_percent(value), *cells)
    own = found.rows[-1].band
    where = "nowhere" if own.is_empty else f"at scores from {own.low:.4g} to {own.high:.4g}"
    lines = [f"the cascade: the judge decides {where}, {own.chosen}"]
    if own.is_chosen:
        lines.append("bands are chosen on benchmark.fit_on, of which no row is tested; each p by itself")
    table.caption = Text("\n".join(lines))
    place = 0 if report.headline else 1
    first = report.headline or report.tables[:place]
    tables = report.tables[place:]
    return replace(report, headline=(*first, table), tables=tables, metrics=report.metrics | metrics)
