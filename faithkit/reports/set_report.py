"""Reports of benchmarks that are scored as their papers and leaderboards do: set by set, with the mean of the sets.

LLM-AggreFact: balanced accuracy. TRUE: AUROC; its mean is without FEVER and VitaminC, which some metrics learned.
PsiloQA: intersection over union of marked characters, 1 where neither side marks any, mean over the rows of a language.
FaithBench: balanced accuracy and macro-F1 of all rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import BaselineData, refit_threshold
from faithkit.metrics.classification import classification_statistic
from faithkit.metrics.outcomes import Outcomes, join_outcomes
from faithkit.metrics.span_metrics import join_spans
from faithkit.pages.page_tables import bold, escape_terminal, format_percent, format_published, new_number_table
from faithkit.published.figures import set_figures
from faithkit.records import Example, Prediction
from faithkit.reports.report import Report
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap, mean_statistic
from faithkit.statistics.metric import ACCURACY, SIMILARITY, Metric
from faithkit.statistics.spread import Statistic, Values

IOU = "iou"
ALL, MEAN = "all rows", "mean"
HEADS = {"balanced_accuracy": "balanced acc.", "auroc": "AUROC", "macro_f1": "macro-F1", IOU: "IoU"}
NUM_BEST = 5  # published systems above which the model is placed
MAX_COLUMNS = 2  # more published systems are shown as their best and median


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
    "faithbench": Protocol(metrics=("balanced_accuracy", "macro_f1")),
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
    tables = [_set_table(scored.metrics, fitted, sets, protocol, title=title, dataset=dataset)]
    if (found := _leaderboard(scored.metrics, sets, protocol, title=title, dataset=dataset)) is not None:
        tables.append(found)
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
    iou = row_iou(examples, predictions) if IOU in protocol.metrics else None
    found: dict[str, Statistic] = {}
    sizes: dict[str, int] = {}
    for name in names:
        rows = np.array([one == name for one in sets])
        found[name] = (
            _iou_statistic(outcomes, iou, rows) if iou is not None else _label_statistic(outcomes, rows, protocol)
        )
        sizes |= {f"set/{name}/{metric}": int(rows.sum()) for metric in protocol.metrics}
    once = np.ones((1, outcomes.groups.count))
    defined = {name: [one for one in protocol.metrics if one in statistic(once)] for name, statistic in found.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a set
            values = {name: one(weights) for name, one in found.items()}
        scored = {f"set/{name}/{metric}": values[name][metric] for name in names for metric in defined[name]}
        for metric in protocol.metrics if protocol.field else ():
            parts = [scored[f"set/{name}/{metric}"] for name in names if _counts(name, metric)]
            scored |= {f"{MEAN}/{metric}": np.mean(parts, axis=0)} if parts else {}
        return scored

    def _counts(name: str, metric: str) -> bool:
        return metric in defined[name] and name not in protocol.not_in_mean

    kind = SIMILARITY if iou is not None else ACCURACY
    result = bootstrap(outcomes.groups, statistic, kinds=kind, n=sizes, num_resamples=num_resamples)
    missing = [name for name in names if len(defined[name]) < len(protocol.metrics)]
    why = f"rows of one label, or without scores: {', '.join(map(escape_terminal, missing))}"
    return ScoredMetrics(metrics=result.metrics, notes=(why,) if missing else ())


def row_iou(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Values:
    """Computes each row's characters marked by both sides / by any, 1 where there are none [N]."""
    spans = join_spans(examples, predictions)
    union = spans.marked + spans.found - spans.hits
    return np.where(union > 0, spans.hits / np.maximum(union, 1), 1.0)


def _iou_statistic(outcomes: Outcomes, iou: Values, rows: np.ndarray) -> Statistic:
    return mean_statistic(Groups(outcomes.groups.index[rows], outcomes.groups.count), {IOU: iou[rows]})


def _label_statistic(outcomes: Outcomes, rows: np.ndarray, protocol: Protocol) -> Statistic:
    part = outcomes.select(rows, keep_groups=True)
    if "auroc" not in protocol.metrics:
        part.scores[:] = np.nan  # ranking metrics take time
    return classification_statistic(part)


def _published(sets: Sequence[str], protocol: Protocol, dataset: str) -> tuple[dict[str, list[float]], list[str]]:
    """Gives each published system's figures of the sets here, those of the mean first, and what they cite.

    A system without a figure of a set in the mean is left out.
    """
    wanted = [name for name in dict.fromkeys(sets) if name not in protocol.not_in_mean]
    figures: dict[str, list[float]] = {
        row["system"]: [row[name] for name in wanted]
        for row, _ in set_figures(dataset)
        if wanted and all(row.get(name) is not None for name in wanted)
    }
    cited = dict.fromkeys(f"* {table.citation}: {table.protocol}" for _, table in set_figures(dataset))
    return figures, list(cited)


def _set_table(
    metrics: Mapping[str, Metric],
    fitted: Mapping[str, Metric],
    sets: Sequence[str],
    protocol: Protocol,
    *,
    title: str,
    dataset: str,
) -> Table:
    names = list(dict.fromkeys(sets))
    systems = [row for row, _ in set_figures(dataset)]
    is_few = len(systems) <= MAX_COLUMNS
    first = protocol.metrics[0]

    def published(name: str) -> list[str]:
        values = [row.get(name) for row in systems]
        known = [value for value in values if value is not None]
        shown = values if is_few else [max(known), median(known)] if known else [None, None]
        return [*map(format_published, shown)]

    def cells(key: str) -> list[str]:
        shown = [format_percent(metrics.get(f"{key}/{metric}")) for metric in protocol.metrics]
        return shown + ([format_percent(fitted.get(f"{key}/{first}"), bounds=False)] if fitted else [])

    def rows() -> Iterator[Sequence[str | Text] | None]:
        for name in names:
            yield [escape_terminal(name), f"{sets.count(name):,}", *cells(f"set/{name}"), *published(name)]
        if protocol.field:
            known, _ = _published(sets, protocol, dataset)
            means = [sum(each) / len(each) for each in known.values()]
            theirs = [float(np.mean(known[r["system"]])) if r["system"] in known else None for r in systems]
            shown = theirs if is_few else [max(means), median(means)] if means else [None, None]
            yield None
            yield [bold(MEAN), "", *cells(MEAN), *map(format_published, shown)]

    heads = [HEADS[metric] for metric in protocol.metrics] + (["fitted"] if fitted else [])
    heads += [f"{row['system']} *" for row in systems] if is_few else ["best *", "median *"]
    lines = [
        "95% intervals over groups" + "; at the detector's own threshold" * ("balanced_accuracy" in protocol.metrics)
    ]
    lines += [f"the mean leaves out {', '.join(protocol.not_in_mean)}"] * bool(protocol.not_in_mean)
    lines += _published(sets, protocol, dataset)[1] if systems else []
    part = f" by {protocol.field}" if protocol.field else ", as its paper scores it"
    return new_number_table(
        f"{title}{part}, percent",
        protocol.field or "part",
        ["rows", *heads],
        rows(),
        caption=lines,
        no_wrap=["rows"],
    )


def _leaderboard(
    metrics: Mapping[str, Metric], sets: Sequence[str], protocol: Protocol, *, title: str, dataset: str
) -> Table | None:
    """Places the model's mean among the published ones of the same sets; None without figures."""
    known, _ = _published(sets, protocol, dataset)
    ours = metrics.get(f"{MEAN}/{protocol.metrics[0]}")
    if ours is None or not known:
        return None
    means = sorted(((float(np.mean(each)), system) for system, each in known.items()), reverse=True)
    place = sum(mean > 100 * ours.value for mean, _ in means) + 1
    rows: list[Sequence[str | Text]] = [[f"{system} *", f"{mean:.1f}"] for mean, system in means[:NUM_BEST]]
    rows.insert(min(place - 1, NUM_BEST), [bold("model"), format_percent(ours)])
    lines = [f"place {place} of {len(means) + 1}; the mean of {len(set(sets) - set(protocol.not_in_mean))} sets"]
    return new_number_table(f"{title}, the best means", "system", [HEADS[protocol.metrics[0]]], rows, caption=lines)
