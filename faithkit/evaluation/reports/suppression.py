"""The report of `benchmark=suppression`: RAGTruth's Table 7 with our figures beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.errors import UserError
from faithkit.evaluation.intervals import Metric
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
TITLES = {
    RANDOM: "random choice",
    FEWEST: "fewest detected spans",
    FEWEST_BY_SCORE: "fewest, then lowest score",
    NONE: "no detected span",
    NONE_BY_SCORE: "none, then lowest score",
    MARKS_NOTHING: "a detector that marks nothing",
    PERFECT: "a perfect detector",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """A row of Table 7: responses, hallucination rate in percent, reduction against random in percent as printed."""

    num_valid: int
    rate: float
    reduction: float | None = None


# By the two models chosen from (in lower case), then by treatment: a model's own responses, or a strategy.
PAPER: Mapping[frozenset[str], Mapping[str, PaperRow]] = {
    frozenset({"llama-2-7b-chat", "mistral-7b-instruct"}): {
        "llama-2-7b-chat": PaperRow(num_valid=450, rate=51.8),
        "mistral-7b-instruct": PaperRow(num_valid=450, rate=57.6),
        RANDOM: PaperRow(num_valid=450, rate=55.1),
        FEWEST: PaperRow(num_valid=450, rate=43.1, reduction=21.8),
        NONE: PaperRow(num_valid=326, rate=23.9, reduction=56.6),
    },
    frozenset({"gpt-3.5-turbo-0613", "gpt-4-0613"}): {
        "gpt-3.5-turbo-0613": PaperRow(num_valid=450, rate=10.9),
        "gpt-4-0613": PaperRow(num_valid=450, rate=9.3),
        RANDOM: PaperRow(num_valid=450, rate=10.4),
        FEWEST: PaperRow(num_valid=450, rate=5.3, reduction=41.0),
        NONE: PaperRow(num_valid=446, rate=4.9, reduction=52.9),
    },
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
    origin: Provenance | None = None,
) -> dict[str, Metric]:
    """Scores each group of models, writes metrics.json and prints the table; the run's path comes last.

    Metrics are named `test/suppression/<group>/<strategy>/hallucination_rate` and so on
    (faithkit/evaluation/suppression.py). A group none of whose models wrote a response is left out and named.

    Args:
        groups: By a name of one's own, the models to choose from at each source; None: all of them.
        origin: Where the predictions are from; None leaves it out.
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
        paper = PAPER.get(frozenset(model.lower() for model in models), {})
        table.add_row(Text(harmless(name), style="bold"))
        treatments = {f"from/{model}": (model, model.lower()) for model in models}
        treatments |= {key: (TITLES[key], key) for key in TITLES}
        for prefix, (title, key) in treatments.items():
            if (rate := metrics.get(f"{prefix}/{RATE}")) is None:
                continue
            cells = [_percent(rate), _percent(metrics.get(f"{prefix}/{REDUCTION}"))]
            table.add_row(Text(f"  {harmless(title)}"), f"{rate.n:,}", *cells)
            if row := paper.get(key):
                reduction = "-" if row.reduction is None else f"{row.reduction:.1f}"
                table.add_row("    paper", f"{row.num_valid:,}", f"{row.rate:.1f}", reduction)
        table.add_section()
        captions += [f"{harmless(name)}: {misprint}" for misprint in _misprints(paper)]
        if same := metrics.get(f"{NONE}/{SAME_SOURCES}"):
            said = format_metric(same, digits=1, scale=100)
            captions.append(f"{harmless(name)}: {TITLES[NONE]}, against random choice at the same sources: {said}")
    table.caption = Text("\n".join(captions))
    return table


def _misprints(paper: Mapping[str, PaperRow]) -> list[str]:
    """Names the reductions that the paper prints but that do not follow from its own rates."""
    notes = []
    for row in paper.values():
        reduction = 100 * (1 - row.rate / paper[RANDOM].rate)
        if row.reduction is not None and abs(reduction - row.reduction) > 0.5:
            notes.append(f"the paper prints a reduction of {row.reduction:.1f} where its rates give {reduction:.1f}")
    return notes


def _percent(metric: Metric | None) -> str:
    return format_metric(metric, digits=1, scale=100)
