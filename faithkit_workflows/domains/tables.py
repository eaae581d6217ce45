"""The tables of the report over domains: each system's figures by domain, and their means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.pages.tables import escape_terminal, format_p, format_percent, new_number_table
from faithkit.statistics.bootstrap import Difference, Resamples
from faithkit.statistics.metric import Metric
from faithkit_workflows.domains.tested import DomainTest

SHOWN = {"macro_f1": "macro-F1", "auroc": "AUROC", "average_precision": "AP", "ece": "ECE"}
RANKING, MEAN, MODEL = "auroc", "mean", "model"


@dataclass(frozen=True, slots=True)
class ScoredDomain:
    """A domain's metrics by system, and the draws that their differences need."""

    test: DomainTest
    metrics: dict[str, dict[str, Metric]]
    draws: dict[str, Resamples]
    differences: dict[str, Difference]  # of the model's AUROC from each baseline's, by the baseline's key


def headline(
    scored: Sequence[ScoredDomain],
    means: Mapping[str, Mapping[str, Metric]],
    mean_differences: Mapping[str, Difference],
    title: str,
) -> Table:
    """Shows the model's AUROC in each domain beside the baseline that is best there; four columns fit 80 characters."""
    heads = ("model", "best baseline", "model less it")
    table = new_number_table(f"{title}: AUROC in percent", "domain", heads, no_wrap=["model", "model less it"])
    for beside in (False, True):
        for one in (each for each in scored if each.test.beside == beside):
            names = {baseline.key: baseline.name for baseline in one.test.baselines}
            cells = _beside_best(one.metrics, one.differences, names)
            table.add_row(Text(one.test.shown_name), *cells)
        table.add_section()
    names = {baseline.key: baseline.name for one in scored for baseline in one.test.baselines}
    table.add_row(Text(MEAN, style="bold"), *_beside_best(means, mean_differences, names))
    line = (
        "95% intervals over groups, differences paired; baselines are fitted on other domains, the best is chosen on "
    )
    table.caption = _caption(f"{line}these rows", scored)
    return table


def _beside_best(
    metrics: Mapping[str, Mapping[str, Metric]], differences: Mapping[str, Difference], names: Mapping[str, str]
) -> list[str]:
    own = format_percent(metrics.get(MODEL, {}).get(RANKING))
    if not differences:
        return [own, "-", "-"]
    key = min(differences, key=lambda key: differences[key].value)
    best, difference = format_percent(metrics[key][RANKING], bounds=False), differences[key]
    return [own, f"{escape_terminal(names[key])} {best}", format_percent(difference.metric)]


def model_table(scored: Sequence[ScoredDomain], means: Mapping[str, Mapping[str, Metric]], title: str) -> Table:
    """Shows the model's metrics in each domain and in the mean, and how many rows it knew."""
    table = new_number_table(f"{title}, percent", "domain", ["rows", "groups", *SHOWN.values(), "seen"], min_width=12)
    for beside in (False, True):
        for one in (each for each in scored if each.test.beside == beside):
            groups = len({example.group for example in one.test.examples})
            seen = "?" if one.test.seen is None else f"{one.test.seen.sum():,}"
            cells = [format_percent(one.metrics[MODEL].get(name)) for name in SHOWN]
            table.add_row(Text(one.test.shown_name), f"{len(one.test.examples):,}", f"{groups:,}", *cells, seen)
        table.add_section()
    table.add_row(
        Text(MEAN, style="bold"), "", "", *(format_percent(means.get(MODEL, {}).get(name)) for name in SHOWN), ""
    )
    line = "95% intervals over groups, of the mean over groups within each domain; seen: rows that the model knew"
    table.caption = _caption(line, scored)
    return table


def _caption(line: str, scored: Sequence[ScoredDomain]) -> Text:
    """Ends with what a star means, where a name has one."""
    return Text("\n".join([line, *["* beside, not in the mean"] * any(one.test.beside for one in scored)]))


def baselines_table(
    scored: Sequence[ScoredDomain],
    means: Mapping[str, Mapping[str, Metric]],
    mean_differences: Mapping[str, Difference],
    title: str,
) -> Table:
    """Shows each baseline's AUROC and macro-F1 by domain, and the model's AUROC less it."""
    heads = ("AUROC", "macro-F1", "model less it", "p")
    table = new_number_table(
        f"{title}: AUROC less each baseline's, percent", "domain", heads, no_wrap=["p"], min_width=19
    )
    names: dict[str, str] = {}
    for one in scored:
        table.add_row(Text(escape_terminal(one.test.title), style="bold"))
        for baseline in one.test.baselines:
            names[baseline.key] = baseline.name
            own, difference = one.metrics[baseline.key], one.differences.get(baseline.key)
            table.add_row(*_cells(baseline.name, own, difference))
        table.add_section()
    table.add_row(Text(MEAN, style="bold"))
    for key, name in names.items():
        if key in means:
            table.add_row(*_cells(name, means[key], mean_differences.get(key)))
    lines = [f"{one.test.title}: fitted on {_fitted_on(one.test)}" for one in scored if one.test.baselines]
    table.caption = Text("\n".join(lines))
    return table


def _fitted_on(test: DomainTest) -> str:
    return escape_terminal("; ".join(dict.fromkeys(one.fitted_on for one in test.baselines)))


def _cells(name: str, metrics: Mapping[str, Metric], difference: Difference | None) -> list[str]:
    figures = [format_percent(metrics.get(RANKING)), format_percent(metrics.get("macro_f1"), bounds=False)]
    less = ["-", "-"] if difference is None else [format_percent(difference.metric), format_p(difference.p_value)]
    return [f"  {escape_terminal(name)}", *figures, *less]


def alone_table(tests: Sequence[DomainTest], title: str) -> Table:
    """Shows how far each domain is decided without its knowledge."""
    kinds = list(dict.fromkeys(kind for test in tests for kind in test.alone))
    table = new_number_table(f"{title}: what decides each set without the knowledge, AUROC in percent", "domain", kinds)
    for test in tests:
        table.add_row(escape_terminal(test.title), *(format_percent(test.alone.get(kind)) for kind in kinds))
    line = "logistic regressions on the response (knowledge length: on that length) by folds of groups; 50 is nothing"
    table.caption = Text(line)
    return table
