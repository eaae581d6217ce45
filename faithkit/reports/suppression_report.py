"""The report of `benchmark=suppression`: RAGTruth's Table 7 with our figures and the paper's."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.table import Table

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
from faithkit.reports.report import (
    Provenance,
    Report,
    Row,
    Rows,
    add_provenance,
    published_cells,
    score_table,
    select_rows,
)
from faithkit.reports.write_reports import write_run_results
from faithkit.settings.config_files import FEWEST, FEWEST_BY_SCORE, NONE, NONE_BY_SCORE, RANDOM, STRATEGIES
from faithkit.statistics.metric import Metric

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
    name: str = "suppression",
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
    left: dict[str, dict[str, Metric]] = {}

    def name_metrics(of_groups: Mapping[str, Mapping[str, Metric]]) -> dict[str, Metric]:
        return {f"{name}/{short}": one for name, metrics in of_groups.items() for short, one in metrics.items()}

    def rescore(rows: Rows) -> dict[str, Metric]:
        chosen = select_rows(examples, by_id, rows)
        for group, models in present.items():
            with suppress(UserError):  # too little is left of a group
                left[group] = suppression_metrics(*chosen, models=models, **options).metrics
        return name_metrics(left)

    def build_table(systems: Mapping[str, Any], *, title: str) -> Table:
        return suppression_table(left, title=title)

    found = {name: one.metrics for name, one in scored.items()}
    table = suppression_table(found, title="Choosing among responses by detected hallucinations")
    report = Report(metrics=name_metrics(found), tables=(table,), notes=tuple(notes), rescore=rescore)
    report = add_provenance(report, origin, title="suppression", build_table=build_table)
    return write_run_results(run, {name: [report]}, meta=meta)


def suppression_table(groups: Mapping[str, Mapping[str, Metric]], *, title: str) -> Table:
    """Shows the rates of each group's models, of random choice and of each strategy, with the paper's figures.

    The paper's are in percent, reductions as printed; a choice between other models than the paper's has none.
    """
    published: dict[str, dict[str, Mapping[str, Any]]] = {}  # by group and treatment: a single model, or a strategy
    for row in published_table("ragtruth_suppression").rows:
        published.setdefault(row["group"], {})[row["treatment"]] = row
    rows: list[Row] = []
    captions = [
        "95% intervals over sources; reduction: of random choice's rate at all sources",
        "ties: the expectation of drawing one at random",
    ]
    for name, metrics in groups.items():
        models = [n.split("/", 1)[1].rpartition("/")[0] for n in metrics if n.startswith("from/")]
        wanted = {model.lower() for model in models}
        paper = next((found for found in published.values() if found.keys() - TITLES.keys() == wanted), {})
        rows.append(bold(name))
        treatments = {f"from/{model}": (model, model.lower()) for model in models}
        treatments |= {key: (TITLES[key], key) for key in TITLES}
        for prefix, (shown, key) in treatments.items():
            if (rate := metrics.get(f"{prefix}/{RATE}")) is None:
                continue
            ours = {RATE: rate, REDUCTION: metrics.get(f"{prefix}/{REDUCTION}")}
            rows.append((f"  {escape_terminal(shown)}", {"valid": rate.n, **ours}))
            if figures := paper.get(key):
                theirs = published_cells(figures, {RATE: "rate", REDUCTION: "reduction"})
                rows.append(("    paper", {"valid": figures["num_valid"], **theirs}))
        rows.append(None)
        for row in paper.values():
            printed, found = row["reduction"], 100 * (1 - row["rate"] / paper[RANDOM]["rate"])
            if printed is not None and abs(found - printed) > 0.5:
                misprint = f"the paper prints a reduction of {printed:.1f} where its rates give {found:.1f}"
                captions.append(f"{escape_terminal(name)}: {misprint}")
        if same := metrics.get(f"{NONE}/{SAME_SOURCES}"):
            against = f"{TITLES[NONE]}, against random choice at the same sources"
            captions.append(f"{escape_terminal(name)}: {against}: {format_percent(same)}")
    title, columns = f"{title}, percent", {"valid": "valid", RATE: "hallucinated", REDUCTION: "reduction"}
    heads = list(columns.values())
    return score_table(title, "treatment", columns, rows, caption=captions, no_wrap=heads, show_edge=True)
