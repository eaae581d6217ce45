"""The report of a test set with labels: classification metrics beside fitted baselines, predictions to judge by eye."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.baselines.fitted import Baseline, Fitting, beside
from faithkit.metrics.classification import classification_metrics, compare
from faithkit.pages.tables import (
    choose_examples,
    figures_table,
    format_p,
    harmless,
    metrics_table,
    percent,
    predictions_table,
)
from faithkit.records import Example, Prediction
from faithkit.reports.parts import flat, part_metrics, part_tables
from faithkit.reports.provenance import Provenance, Rows, select, with_provenance
from faithkit.reports.report import Report, sample_row
from faithkit.statistics.intervals import Difference, Metric

SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # the others stand in metrics.json
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")
HEADLINE = "macro_f1"
BESIDE = {"f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy", "ece": "ECE"}


def label_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    fitting: Fitting | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
    origin: Provenance | None = None,
) -> Report:
    """Computes classification metrics, with those of each baseline (`overlap_macro_f1`) and what the model has over it.

    Some datasets are also scored by part (`domain/task/macro_f1`).

    The differences are `difference/overlap_macro_f1` with their p-values `p_value/overlap_macro_f1`, both on the same
    resamples of groups.

    Args:
        dataset: The benchmark's name, where its published figures are to stand beside ours.
        origin: Where the predictions are from; None leaves it out.
    """
    scored = classification_metrics(examples, predictions, num_resamples=num_resamples)
    metrics = dict(scored.metrics)
    columns = {"model": {n: m for n, m in scored.metrics.items() if n in SHOWN}}
    rows: list[tuple[Baseline, Metric, Difference]] = []
    for baseline in beside(examples, predictions, fitting or Fitting()):
        found = classification_metrics(examples, baseline.predictions, num_resamples=num_resamples).metrics
        columns[baseline.name] = shown = {n: found[n] for n in SHOWN_OF_BASELINE if n in found}
        differences = compare(examples, predictions, baseline.predictions, num_resamples=num_resamples)
        own = {f"{baseline.key}_{n}": m for n, m in shown.items()}
        metrics = own | metrics | _named(baseline.key, differences)  # the majority class has some of its own already
        rows.append((baseline, found[HEADLINE], differences[HEADLINE]))
    # Three columns fit 80 characters: the model, the commoner class and word overlap; the others stand below.
    tables = [metrics_table(dict(list(columns.items())[:3]), title=title), _baselines_table(rows, title=title)]
    headline = headline_table(scored.metrics, columns, rows, title=title)
    parts = part_metrics(examples, predictions, fitting=fitting, num_resamples=num_resamples)
    metrics |= flat(parts, {baseline.name: baseline.key for baseline, _, _ in rows})
    source = examples[0].source
    tables += part_tables(parts, whole=scored.metrics, title=title, dataset=dataset, source=source)
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    samples = [sample_row(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    fitted = next((one for one, _, _ in rows if one.threshold is not None), None)
    notes, facts = scored.notes, {}
    if fitted is not None:
        use = f"to use it: faithkit score ... threshold={fitted.threshold:.4f}"
        notes, facts = (
            (*notes, f"threshold fitted on {harmless(fitted.fitted_on)}; {use}"),
            {"threshold": fitted.threshold},
        )
    report = Report(
        metrics=metrics,
        headline=(headline,),
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        facts=facts,
    )
    if origin is None:
        return report

    def score(rows: Rows) -> Mapping[str, Metric]:
        return classification_metrics(*select(examples, predictions, rows), num_resamples=num_resamples).metrics

    return with_provenance(report, origin, score, title=title, shown=SHOWN)


def headline_table(
    model: Mapping[str, Metric],
    columns: Mapping[str, Mapping[str, Metric]],
    rows: Sequence[tuple[Baseline, Metric, Difference]],
    *,
    title: str,
) -> Table:
    """Shows the model above its baselines by macro-F1, and what it has over each; five columns fit 80 characters."""
    heads = ("macro-F1", "AUROC", "model less it", "p")
    table = figures_table(f"{title}, percent", "system", heads, no_wrap=["AUROC", "p"])
    table.add_row(Text("model", style="bold"), percent(model[HEADLINE]), _plain(model.get("auroc")), "", "")
    for baseline, value, difference in rows:
        cells = [percent(value), _plain(columns[baseline.name].get("auroc"))]
        table.add_row(baseline.name, *cells, percent(difference.metric), format_p(difference.p_value))
    others = [f"{head} {_plain(model[name])}" for name, head in BESIDE.items() if name in model]
    lines = [f"model: {', '.join(others)}", f"n = {model[HEADLINE].n:,}; 95% intervals over groups, differences paired"]
    table.caption = Text("\n".join(lines))
    return table


def _plain(metric: Metric | None) -> str:
    return percent(metric, bounds=False)


def _named(key: str, differences: Mapping[str, Difference]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for name, one in differences.items():
        if name in SHOWN_OF_BASELINE:
            found |= one.named(f"{key}_{name}")
    return found


def _baselines_table(rows: Sequence[tuple[Baseline, Metric, Difference]], *, title: str) -> Table:
    """Shows each baseline's macro-F1, and the model's less it."""
    heads = ("its own", "model less it", "p")
    title = f"{title}: the model less each baseline, macro-F1 in percent"
    table = figures_table(title, "baseline", heads, no_wrap=["p"])
    for baseline, value, difference in rows:
        table.add_row(baseline.name, percent(value), percent(difference.metric), format_p(difference.p_value))
    lines = [f"{one.name}: fitted on {harmless(one.fitted_on)}" for one, _, _ in rows]
    table.caption = Text("\n".join([*lines, "paired, on the same resamples of groups; p two-sided, each by itself"]))
    return table
