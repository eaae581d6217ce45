"""Reports of benchmarks that are scored as their papers and leaderboards do: set by set, with the mean of the sets.

LLM-AggreFact: balanced accuracy. TRUE: AUROC; its mean is without FEVER and VitaminC, which some metrics learned.
PsiloQA: intersection over union of marked characters, 1 where neither side marks any, mean over the rows of a language;
LettuceDetect's data are scored so by set.
FaithBench: balanced accuracy and macro-F1 of all rows. SummEdits: balanced accuracy of each domain.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from faithkit.baselines.simple_detectors import BaselineData, refit_threshold
from faithkit.metrics.classification import classification_statistic, join_outcomes
from faithkit.metrics.span_metrics import join_spans
from faithkit.pages.page_tables import bold, escape_terminal
from faithkit.published.figures import set_figures
from faithkit.records import Example, Prediction
from faithkit.reports.report import Cell, Report, Row, score_table
from faithkit.scores.measures import titles_of
from faithkit.statistics.bootstrap import ScoredMetrics, bootstrap, mean_statistic
from faithkit.statistics.metric import ACCURACY, SIMILARITY, Metric
from faithkit.statistics.spread import Statistic, Values

IOU = "iou"
ALL, MEAN = "all rows", "mean"
BEST = "best *"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a benchmark's rows are scored.

    Args:
        metrics: The first one ranks.
        field: Of `meta`, which names the set of a row; None for one set.
        not_in_mean: Sets that the mean leaves out.
    """

    metrics: tuple[str, ...]
    field: str | None = None
    not_in_mean: tuple[str, ...] = ()


PROTOCOLS = {
    "aggrefact": Protocol(metrics=("balanced_accuracy",), field="set"),
    "true_sets": Protocol(metrics=("auroc",), field="set", not_in_mean=("fever", "vitc")),
    "psiloqa": Protocol(metrics=(IOU,), field="language"),
    "lettucedetect_code": Protocol(metrics=(IOU,), field="set"),
    "lettucedetect_prose": Protocol(metrics=(IOU,), field="set"),
    "faithbench": Protocol(metrics=("balanced_accuracy", "macro_f1")),
    "summedits": Protocol(metrics=("balanced_accuracy",), field="domain"),
}


def set_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    fitting: BaselineData | None = None,
    num_resamples: int = 1000,
) -> Report | None:
    """Computes `set/Wice/balanced_accuracy` and `mean/balanced_accuracy`; None for a dataset without such a protocol.

    Where `fitting` has the model's predictions of other rows, `fitted/...` has its threshold fitted on these.

    Args:
        dataset: The benchmark, to show its published figures; empty for none.
    """
    protocol = PROTOCOLS.get(examples[0].source)
    if protocol is None or (protocol.metrics == (IOU,) and not any(one.spans for one in predictions.values())):
        return None
    sets = [str(one.meta[protocol.field]) if protocol.field else ALL for one in examples]
    scored = _score(examples, predictions, sets, protocol, num_resamples)
    metrics, notes = dict(scored.metrics), list(scored.notes)
    fitted: Mapping[str, Metric] = {}
    has_threshold = "balanced_accuracy" in protocol.metrics
    refitted = (
        refit_threshold(predictions, fitting) if has_threshold and fitting and fitting.model_predictions else None
    )
    if refitted is not None:
        fitted = _score(examples, refitted.predictions, sets, protocol, num_resamples).metrics
        metrics |= {f"fitted/{name}": metric for name, metric in fitted.items()}
        notes.append(f"fitted: threshold of the best macro-F1 on {escape_terminal(refitted.fitted_on)}")
    sizes, first, figures = Counter(sets), protocol.metrics[0], set_figures(dataset)
    averaged = [name for name in sizes if name not in protocol.not_in_mean]
    means = []  # of each published system over the sets, the best first; only of those with all figures
    for row, _ in figures:
        if averaged and all(row.get(name) is not None for name in averaged):
            means.append((float(np.mean([row[name] for name in averaged])), str(row["system"])))
    means.sort(reverse=True)

    def cells(key: str, size: int | str, best: float | None) -> dict[str, Cell]:
        shown = {metric: scored.metrics.get(f"{key}/{metric}") for metric in protocol.metrics}
        return {"rows": size, **shown, "fitted": fitted.get(f"{key}/{first}"), BEST: best}

    by_set: list[Row] = []
    for name, size in sizes.items():
        known = [float(row[name]) for row, _ in figures if row.get(name) is not None]
        by_set.append((escape_terminal(name), cells(f"set/{name}", size, max(known, default=None))))
    if protocol.field:
        by_set += [None, (bold(MEAN), cells(MEAN, "", means[0][0] if means else None))]
    columns = {"rows": "rows", **titles_of(protocol.metrics)}
    columns |= {name: name for name, has_any in {"fitted": fitted, BEST: figures}.items() if has_any}
    lines = ["95% intervals over groups" + "; at the detector's own threshold" * (first == "balanced_accuracy")]
    lines += [f"the mean leaves out {', '.join(protocol.not_in_mean)}"] * bool(protocol.not_in_mean)
    lines += dict.fromkeys(f"* {table.citation}: {table.protocol}" for _, table in figures)
    part = f" by {protocol.field}" if protocol.field else ", as its paper scores it"
    by_sets = score_table(
        f"{title}{part}, percent",
        protocol.field or "part",
        columns,
        by_set,
        bounds=protocol.metrics,
        caption=lines,
        no_wrap=["rows"],
    )
    tables = [by_sets]
    if means and (mean := scored.metrics.get(f"{MEAN}/{first}")) is not None:
        place, head = sum(one > 100 * mean.value for one, _ in means) + 1, titles_of([first])[first]
        rows: list[Row] = [(f"{system} *", {head: one}) for one, system in means[:5]]
        rows.insert(min(place - 1, 5), (bold("model"), {head: mean}))
        lines = [f"place {place} of {len(means) + 1}; the mean of {len(averaged)} sets"]
        tables.append(score_table(f"{title}, the best means", "system", [head], rows, caption=lines))
    by = {protocol.field: {e.id: name for e, name in zip(examples, sets, strict=True)}} if protocol.field else {}
    return Report(metrics=metrics, headline=tuple(tables), notes=tuple(notes), by=by)


def _score(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    sets: Sequence[str],
    protocol: Protocol,
    num_resamples: int,
) -> ScoredMetrics:
    """Scores every set and the mean of the sets on the same resamples of groups."""
    outcomes, names = join_outcomes(examples, predictions), list(dict.fromkeys(sets))
    iou = None  # characters of each row marked by both sides / by any, 1 where there are none [N]
    if IOU in protocol.metrics:
        spans = join_spans(examples, predictions)
        union = spans.marked + spans.found - spans.hits
        iou = np.where(union > 0, spans.hits / np.maximum(union, 1), 1.0)
    found: dict[str, Statistic] = {}
    sizes: dict[str, int] = {}
    for name in names:
        rows = np.array([one == name for one in sets])
        part = outcomes.select(rows, keep_groups=True)
        if "auroc" not in protocol.metrics:
            part.scores[:] = np.nan  # ranking metrics take time
        found[name] = classification_statistic(part) if iou is None else mean_statistic(part.groups, {IOU: iou[rows]})
        sizes |= {f"set/{name}/{metric}": int(rows.sum()) for metric in protocol.metrics}
    once = np.ones((1, outcomes.groups.count))
    defined = {name: [one for one in protocol.metrics if one in statistic(once)] for name, statistic in found.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a set
            values = {name: one(weights) for name, one in found.items()}
        scored = {f"set/{name}/{metric}": values[name][metric] for name in names for metric in defined[name]}
        for metric in protocol.metrics if protocol.field else ():
            averaged = [one for one in names if one not in protocol.not_in_mean and metric in defined[one]]
            parts = [scored[f"set/{one}/{metric}"] for one in averaged]
            scored |= {f"{MEAN}/{metric}": np.mean(parts, axis=0)} if parts else {}
        return scored

    kind = SIMILARITY if iou is not None else ACCURACY
    result = bootstrap(outcomes.groups, statistic, kinds=kind, n=sizes, num_resamples=num_resamples)
    missing = [name for name in names if len(defined[name]) < len(protocol.metrics)]
    why = f"rows of one label, or without scores: {', '.join(map(escape_terminal, missing))}"
    return ScoredMetrics(metrics=result.metrics, notes=(why,) if missing else ())
