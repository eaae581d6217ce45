"""Reports a model and its baselines on each domain: tables, paired differences, and the means."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.pages.page_tables import (
    choose_examples,
    escape_terminal,
    format_p,
    format_percent,
    new_number_table,
    predictions_table,
)
from faithkit.reports.report import Report, build_sample
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric
from faithkit_workflows.domains.scores import (
    COVERAGES,
    MEAN,
    MODEL,
    RANKING,
    SHOWN,
    DomainScores,
    DomainTest,
    ScoredDomain,
    score_domains,
)


def report_domains(
    tests: Sequence[DomainTest], *, title: str, num_resamples: int = 1000, num_examples: int = 5
) -> Report:
    """Scores every domain and builds the report."""
    scores = score_domains(tests, num_resamples=num_resamples)
    tables = [_model_table(scores, title), _baselines_table(scores, title)]
    if any(domain.coverage for domain in scores.domains):
        tables.append(_coverage_table(scores, title))
    if any(test.response_only for test in tests):
        tables.append(_response_only_table(tests, title))
    examples = [example for test in tests for example in test.examples]
    predictions = {id_: prediction for test in tests for id_, prediction in test.predictions.items()}
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if chosen:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    pairs = [(example, predictions[example.id]) for example in chosen]
    return Report(
        metrics=scores.to_metrics(),
        headline=(_headline_table(scores, title),),
        tables=tuple(tables),
        notes=tuple(_compare_with_best_baselines(scores.domains)),
        samples=tuple(build_sample(e, gold=e.label, label=p.label, score=p.score) for e, p in pairs),
    )


def _compare_with_best_baselines(domains: Sequence[ScoredDomain]) -> list[str]:
    """Counts the domains where the model is clearly above, or below, the best baseline."""
    best = {
        domain.test.name: min(domain.differences.values(), key=lambda difference: difference.value)
        for domain in domains
        if domain.differences and not domain.test.extra
    }
    if not best:
        return []

    def listed(names: Sequence[str]) -> str:
        return f"{len(names)}{{of}} ({', '.join(names)})" if names else "0{of}"

    above = listed([name for name, difference in best.items() if difference.low > 0]).format(of=f" of {len(best)}")
    below = listed([name for name, difference in best.items() if difference.high < 0]).format(of="")
    return [f"against the best baseline of each domain: clearly above on {above}, clearly below on {below}"]


def _extra_last(domains: Sequence[ScoredDomain]) -> list[list[ScoredDomain]]:
    return [[domain for domain in domains if domain.test.extra == extra] for extra in (False, True)]


def _headline_table(scores: DomainScores, title: str) -> Table:
    """Shows the model's AUROC in each domain and the best baseline there; four columns fit 80 characters."""
    heads = ("model", "best baseline", "model - baseline")
    table = new_number_table(f"{title}: AUROC in percent", "domain", heads, no_wrap=["model", "model - baseline"])
    names = {baseline.key: baseline.name for domain in scores.domains for baseline in domain.test.baselines}
    for domains in _extra_last(scores.domains):
        for domain in domains:
            cells = _best_baseline_cells(domain.metrics, domain.differences, names)
            table.add_row(Text(domain.test.row_title), *cells)
        table.add_section()
    table.add_row(Text(MEAN, style="bold"), *_best_baseline_cells(scores.means, scores.mean_differences, names))
    line = (
        "95% intervals over groups, differences paired; baselines are fitted on other domains, the best is chosen on "
        "these rows"
    )
    table.caption = _caption(line, scores.domains)
    return table


def _best_baseline_cells(
    metrics: Mapping[str, Mapping[str, Metric]], differences: Mapping[str, Difference], names: Mapping[str, str]
) -> list[str]:
    model = format_percent(metrics.get(MODEL, {}).get(RANKING))
    if not differences:
        return [model, "-", "-"]
    key = min(differences, key=lambda key: differences[key].value)
    best = format_percent(metrics[key][RANKING], bounds=False)
    return [model, f"{escape_terminal(names[key])} {best}", format_percent(differences[key].metric)]


def _model_table(scores: DomainScores, title: str) -> Table:
    """Shows the model's metrics in each domain and in the mean, and how many rows it was trained on."""
    table = new_number_table(f"{title}, percent", "domain", ["rows", "groups", *SHOWN.values(), "seen"], min_width=12)
    for domains in _extra_last(scores.domains):
        for domain in domains:
            test = domain.test
            groups = len({example.group for example in test.examples})
            seen = "?" if test.seen is None else f"{test.seen.sum():,}"
            cells = [format_percent(domain.metrics[MODEL].get(name)) for name in SHOWN]
            table.add_row(Text(test.row_title), f"{len(test.examples):,}", f"{groups:,}", *cells, seen)
        table.add_section()
    means = scores.means.get(MODEL, {})
    table.add_row(Text(MEAN, style="bold"), "", "", *(format_percent(means.get(name)) for name in SHOWN), "")
    line = "95% intervals over groups, of the mean over groups within each domain; seen: rows the model was trained on"
    table.caption = _caption(line, scores.domains)
    return table


def _caption(line: str, domains: Sequence[ScoredDomain]) -> Text:
    has_extra = any(domain.test.extra for domain in domains)
    return Text("\n".join([line, *["* extra domain, not in the mean"] * has_extra]))


def _baselines_table(scores: DomainScores, title: str) -> Table:
    """Shows each baseline's AUROC and macro-F1 by domain, and the model's AUROC minus it."""
    heads = ("AUROC", "macro-F1", "model - baseline", "p")
    table = new_number_table(
        f"{title}: AUROC minus each baseline's, percent", "domain", heads, no_wrap=["p"], min_width=19
    )
    for domain in scores.domains:
        table.add_row(Text(escape_terminal(domain.test.title), style="bold"))
        for baseline in domain.test.baselines:
            metrics, difference = domain.metrics[baseline.key], domain.differences.get(baseline.key)
            table.add_row(*_baseline_cells(baseline.name, metrics, difference))
        table.add_section()
    table.add_row(Text(MEAN, style="bold"))
    names = {baseline.key: baseline.name for domain in scores.domains for baseline in domain.test.baselines}
    for key, name in names.items():
        if key in scores.means:
            table.add_row(*_baseline_cells(name, scores.means[key], scores.mean_differences.get(key)))
    tests = [domain.test for domain in scores.domains if domain.test.baselines]
    fitted_on = [escape_terminal("; ".join(dict.fromkeys(one.fitted_on for one in test.baselines))) for test in tests]
    table.caption = Text("\n".join(f"{t.title}: fitted on {rows}" for t, rows in zip(tests, fitted_on, strict=True)))
    return table


def _baseline_cells(name: str, metrics: Mapping[str, Metric], difference: Difference | None) -> list[str]:
    values = [format_percent(metrics.get(RANKING)), format_percent(metrics.get("macro_f1"), bounds=False)]
    compared = ["-", "-"] if difference is None else [format_percent(difference.metric), format_p(difference.p_value)]
    return [f"  {escape_terminal(name)}", *values, *compared]


def _coverage_table(scores: DomainScores, title: str) -> Table:
    """Shows the model's accuracy on its most confident rows."""
    heads = {f"accuracy_at_{coverage}": f"{coverage}%" for coverage in COVERAGES}
    heads |= {"judged_at_90": "judged at 0.9", "accuracy_judged_at_90": "right of these"}
    table = new_number_table(f"{title}: where it may abstain, percent", "domain", heads.values())
    for domain in scores.domains:
        if domain.coverage:
            table.add_row(domain.test.row_title, *(format_percent(domain.coverage.get(key)) for key in heads))
    line = "accuracy over the most confident 100, 80, 50% (ties included), and over those of at least 0.9"
    table.caption = Text(line)
    return table


def _response_only_table(tests: Sequence[DomainTest], title: str) -> Table:
    """Shows how well each domain's labels can be predicted without the knowledge."""
    kinds = list(dict.fromkeys(kind for test in tests for kind in test.response_only))
    table = new_number_table(f"{title}: prediction without the knowledge, AUROC in percent", "domain", kinds)
    for test in tests:
        table.add_row(escape_terminal(test.title), *(format_percent(test.response_only.get(kind)) for kind in kinds))
    line = "logistic regressions on the response (knowledge length: on that length) by folds of groups; 50 is chance"
    table.caption = Text(line)
    return table
