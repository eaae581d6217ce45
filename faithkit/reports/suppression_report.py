"""The report of `benchmark=suppression`: RAGTruth's Table 7 with our figures and the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.table import Table

from faithkit.choices import FEWEST, FEWEST_BY_SCORE, NONE, NONE_BY_SCORE, RANDOM, STRATEGIES
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.suppression import (
    MARKS_NOTHING,
    PERFECT,
    RATE,
    REDUCTION,
    SAME_SOURCES,
    suppression_metrics,
)
from faithkit.pages.page_tables import bold, escape_terminal, format_percent
from faithkit.published.figures import published_table
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance, Report, Rows, add_provenance, select_rows
from faithkit.reports.score_table import Row, published_cells, score_table
from faithkit.reports.write_reports import write_run_results
from faithkit.statistics.metric import Metric

BENCHMARK = "suppression"
TITLE = "Choosing among responses by detected hallucinations"
PaperRow = Mapping[str, Any]
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
    name: str = BENCHMARK,
    num_resamples: int = 1000,
    origin: Provenance | None = None,
) -> dict[str, Metric]:
    """Scores each group of models, writes metrics.json and prints the table; the run's path comes last.

    Metrics are named `test/suppression/<group>/<strategy>/hallucination_rate` and so on
    (faithkit/metrics/suppression.py). A group without any response is left out, with a note.

    Args:
        name: Of the test set, in metrics.
        groups: The models to choose from at each source, by a name of the group; None: all of them.
        origin: Where the predictions are from; None leaves it out.
    """
    by_id = {prediction.id: prediction for prediction in predictions}
    options: dict[str, Any] = {
        "strategies": [strategy for strategy in strategies if strategy != RANDOM],
        "num_resamples": num_resamples,
    }
    have = {str(example.meta.get("model") or "").lower() for example in examples}
    present = {
        name: models for name, models in groups.items() if models is None or have & {model.lower() for model in models}
    }
    if not present:
        raise UserError("no group of models has a response", hint="name models of the data in benchmark.groups")
    scored = {name: suppression_metrics(examples, by_id, models=models, **options) for name, models in present.items()}
    notes = [
        f"{name} is left out: no response is by {' or '.join(models or ())}"
        for name, models in groups.items()
        if name not in present
    ]
    notes += [f"{name}: {note}" for name, one in scored.items() for note in one.notes]
    found = {name: one.metrics for name, one in scored.items()}
    left: dict[str, dict[str, Metric]] = {}

    def rescore(rows: Rows) -> dict[str, Metric]:
        chosen = select_rows(examples, by_id, rows)
        for group, models in present.items():
            with suppress(UserError):  # too little is left of a group
                left[group] = suppression_metrics(*chosen, models=models, **options).metrics
        return _flatten(left)

    def build_table(systems: Mapping[str, Any], *, title: str) -> Table:
        return suppression_table(left, title=title)

    report = Report(metrics=_flatten(found), tables=(suppression_table(found),), notes=tuple(notes), rescore=rescore)
    report = add_provenance(report, origin, title=BENCHMARK, build_table=build_table)
    return write_run_results(run, {name: [report]}, meta=meta)


def _flatten(groups: Mapping[str, Mapping[str, Metric]]) -> dict[str, Metric]:
    return {f"{name}/{short}": metric for name, metrics in groups.items() for short, metric in metrics.items()}


def suppression_table(groups: Mapping[str, Mapping[str, Metric]], *, title: str = TITLE) -> Table:
    """Shows the rates of each group's models, of random choice and of each strategy, with the paper's figures."""
    rows: list[Row] = []
    captions = [
        "95% intervals over sources; reduction: of random choice's rate at all sources",
        "ties: the expectation of drawing one at random",
    ]
    for name, metrics in groups.items():
        models = [n.split("/", 1)[1].rpartition("/")[0] for n in metrics if n.startswith("from/")]
        paper = paper_rows(models)
        rows.append(bold(name))
        treatments = {f"from/{model}": (model, model.lower()) for model in models}
        treatments |= {key: (TITLES[key], key) for key in TITLES}
        for prefix, (shown, key) in treatments.items():
            if (rate := metrics.get(f"{prefix}/{RATE}")) is None:
                continue
            ours = {RATE: rate, REDUCTION: metrics.get(f"{prefix}/{REDUCTION}")}
            rows.append((f"  {escape_terminal(shown)}", {"valid": rate.n, **ours}))
            if row := paper.get(key):
                theirs = published_cells(row, {RATE: "rate", REDUCTION: "reduction"})
                rows.append(("    paper", {"valid": row["num_valid"], **theirs}))
        rows.append(None)
        captions += [f"{escape_terminal(name)}: {misprint}" for misprint in _misprints(paper)]
        if same := metrics.get(f"{NONE}/{SAME_SOURCES}"):
            against = f"{TITLES[NONE]}, against random choice at the same sources"
            captions.append(f"{escape_terminal(name)}: {against}: {format_percent(same)}")
    title, columns = f"{title}, percent", {"valid": "valid", RATE: "hallucinated", REDUCTION: "reduction"}
    heads = list(columns.values())
    return score_table(title, "treatment", columns, rows, caption=captions, no_wrap=heads, show_edge=True)


def paper_rows(models: Iterable[str]) -> dict[str, PaperRow]:
    """Finds the paper's rows for a choice between these models, by treatment: a single model, or a strategy.

    Rates and reductions are in percent, reductions as printed; none if the paper has no such choice.
    """
    groups: dict[str, dict[str, PaperRow]] = {}
    for row in published_table("ragtruth_suppression").rows:
        groups.setdefault(row["group"], {})[row["treatment"]] = row
    wanted = {model.lower() for model in models}
    return next((rows for rows in groups.values() if rows.keys() - TITLES.keys() == wanted), {})


def _misprints(paper: Mapping[str, PaperRow]) -> list[str]:
    """Names the reductions that the paper prints but that do not follow from its rates."""
    notes = []
    for row in paper.values():
        printed, found = row["reduction"], 100 * (1 - row["rate"] / paper[RANDOM]["rate"])
        if printed is not None and abs(found - printed) > 0.5:
            notes.append(f"the paper prints a reduction of {printed:.1f} where its rates give {found:.1f}")
    return notes
