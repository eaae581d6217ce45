"""The report of `benchmark=suppression`: RAGTruth's Table 7 with our figures beside the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.errors import UserError
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.published.tables import published_table
from faithkit.evaluation.results import full_names, write_results
from faithkit.evaluation.suppression import (
    FEWEST,
    FEWEST_BY_SCORE,
    MARKS_NOTHING,
    NONE,
    NONE_BY_SCORE,
    PERFECT,
    RANDOM,
    RATE,
    REDUCTION,
    SAME_SOURCES,
    STRATEGIES,
    suppression_metrics,
)
from faithkit.evaluation.tables import format_metric, harmless, new_table, show
from faithkit.files.run_folder import RunFolder
from faithkit.records import Example, Prediction

BENCHMARK = "suppression"
Row = Mapping[str, Any]  # of the published table
TITLES = {
    RANDOM: "random choice",
    FEWEST: "fewest detected spans",
    FEWEST_BY_SCORE: "fewest, then lowest score",
    NONE: "no detected span",
    NONE_BY_SCORE: "none, then lowest score",
    MARKS_NOTHING: "a detector that marks nothing",
    PERFECT: "a perfect detector",
}


def report_suppression(
    run: RunFolder,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    *,
    groups: Mapping[str, Sequence[str] | None],
    strategies: Sequence[str] = STRATEGIES,
    meta: Mapping[str, Any],
    split: str = "test",
    num_resamples: int = 1000,
) -> dict[str, Metric]:
    """Scores each group of models, writes metrics.json and prints the table; the run's path comes last.

    Metrics are named `test/suppression/<group>/<strategy>/hallucination_rate` and so on
    (faithkit/evaluation/suppression.py). A group none of whose models wrote a response is left out and named.

    Args:
        groups: By a name of one's own, the models to choose from at each source; None: all of them.
    """
    unknown = [strategy for strategy in strategies if strategy not in (RANDOM, *STRATEGIES)]
    if unknown:
        raise UserError(f"unknown strategy {unknown[0]!r}", hint=f"use {', '.join((RANDOM, *STRATEGIES))}")
    by_id = {prediction.id: prediction for prediction in predictions}
    have = {str(example.meta.get("model") or "").lower() for example in examples}
    metrics: dict[str, Metric] = {}
    found: dict[str, dict[str, Metric]] = {}
    for name, models in groups.items():
        if models is not None and not have & {model.lower() for model in models}:
            print(f"note: {name} is left out: no response is by {' or '.join(models)}")
            continue
        scored = suppression_metrics(
            examples,
            by_id,
            models=models,
            strategies=[strategy for strategy in strategies if strategy != RANDOM],
            num_resamples=num_resamples,
        )
        found[name] = scored.metrics
        metrics |= full_names(split, BENCHMARK, {f"{name}/{short}": metric for short, metric in scored.metrics.items()})
        for note in scored.notes:
            print(f"note: {name}: {note}")
    if not found:
        raise UserError("no group of models has a response", hint="name models of the data in benchmark.groups")
    show(suppression_table(found))
    write_results(run.metrics, metrics, meta)
    print(run.path)
    return metrics


def suppression_table(groups: Mapping[str, Mapping[str, Metric]]) -> Table:
    """For each group the models' own rates, random choice, each strategy, and the paper's figures under ours."""
    table = new_table("Choosing among responses by detected hallucinations, percent")
    table.add_column("treatment", overflow="fold")
    table.add_column("valid", justify="right", no_wrap=True)
    table.add_column("hallucinated", justify="right", no_wrap=True)
    table.add_column("reduction", justify="right", no_wrap=True)
    captions = [
        "95% bootstrap intervals over sources; reduction: of random choice's rate at all sources",
        "ties: the expectation of drawing one at random",
    ]
    for name, metrics in groups.items():
        models = [n.split("/", 1)[1].rpartition("/")[0] for n in metrics if n.startswith("from/")]
        paper = paper_rows(models)
        table.add_row(Text(harmless(name), style="bold"))
        treatments = {f"from/{model}": (model, model.lower()) for model in models}
        treatments |= {key: (TITLES[key], key) for key in TITLES}
        for prefix, (title, key) in treatments.items():
            if (rate := metrics.get(f"{prefix}/{RATE}")) is None:
                continue
            cells = [_percent(rate), _percent(metrics.get(f"{prefix}/{REDUCTION}"))]
            table.add_row(Text(f"  {harmless(title)}"), f"{rate.n:,}", *cells)
            if row := paper.get(key):
                reduction = "-" if row["reduction"] is None else f"{row['reduction']:.1f}"
                table.add_row("    paper", f"{row['num_valid']:,}", f"{row['rate']:.1f}", reduction)
        table.add_section()
        captions += [f"{harmless(name)}: {misprint}" for misprint in _misprints(paper)]
        if same := metrics.get(f"{NONE}/{SAME_SOURCES}"):
            said = format_metric(same, digits=1, scale=100)
            captions.append(f"{harmless(name)}: {TITLES[NONE]}, against random choice at the same sources: {said}")
    table.caption = Text("\n".join(captions))
    return table


def paper_rows(models: Iterable[str]) -> dict[str, Row]:
    """Finds the paper's rows for a choice between these models, by treatment: a model's own responses, or a strategy.

    Rates and reductions are in percent, reductions as printed; none where the paper has no such choice.
    """
    groups: dict[str, dict[str, Row]] = {}
    for row in published_table("ragtruth_suppression").rows:
        groups.setdefault(row["group"], {})[row["treatment"]] = row
    wanted = {model.lower() for model in models}
    return next((rows for rows in groups.values() if rows.keys() - TITLES.keys() == wanted), {})


def _misprints(paper: Mapping[str, Row]) -> list[str]:
    """Names the reductions that the paper prints but that do not follow from its own rates."""
    notes = []
    for row in paper.values():
        printed, found = row["reduction"], 100 * (1 - row["rate"] / paper[RANDOM]["rate"])
        if printed is not None and abs(found - printed) > 0.5:
            notes.append(f"the paper prints a reduction of {printed:.1f} where its rates give {found:.1f}")
    return notes


def _percent(metric: Metric | None) -> str:
    return format_metric(metric, digits=1, scale=100)
