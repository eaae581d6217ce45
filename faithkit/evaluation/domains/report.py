"""The report over domains: a model beside its baselines in each, their paired differences, and the means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from faithkit.evaluation.classification import score, statistic
from faithkit.evaluation.domains.mean import draw_domains, mean_difference, mean_metric
from faithkit.evaluation.fitted_baselines import Baseline
from faithkit.evaluation.intervals import Difference, Draws, Metric
from faithkit.evaluation.outcomes import join
from faithkit.evaluation.reports.report import Report, sample_row
from faithkit.evaluation.tables import choose_examples, figures_table, format_p, harmless, percent, predictions_table
from faithkit.records import Example, Prediction

SHOWN = {"macro_f1": "macro-F1", "auroc": "AUROC", "average_precision": "AP", "ece": "ECE"}
RANKING, MEAN, MODEL = "auroc", "mean", "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTest:
    """The tested rows of one domain with a model's predictions and those of baselines.

    Args:
        title: As tables name it.
        beside: Shown, and left out of the means.
        alone: What decides the set without the knowledge: AUROC by kind of features.
        telling: Words that speak for hallucinated, and words that speak for faithful.
        num_seen: Rows that the model has seen; None where it cannot be told.
    """

    name: str
    title: str
    examples: Sequence[Example]
    predictions: Mapping[str, Prediction]
    baselines: Sequence[Baseline] = ()
    beside: bool = False
    alone: Mapping[str, Metric] = field(default_factory=dict)
    telling: tuple[Sequence[str], Sequence[str]] = ((), ())
    num_seen: int | None = None


@dataclass(frozen=True, slots=True)
class _Scored:
    """A domain's metrics by system, and the draws that their differences need."""

    test: DomainTest
    metrics: dict[str, dict[str, Metric]]
    draws: dict[str, Draws]
    differences: dict[str, Difference]  # of the model's AUROC from each baseline's, by the baseline's key


def domains_report(
    tests: Sequence[DomainTest], *, title: str, num_resamples: int = 1000, num_examples: int = 5
) -> Report:
    """Scores every domain and averages them.

    Metrics are named `wow/auroc`, `wow/overlap_auroc` and `wow/difference/overlap_auroc`; means `mean/auroc` and so on.
    """
    scored = [_score(test, number, num_resamples) for number, test in enumerate(tests)]
    counted = [one for one in scored if not one.test.beside]
    metrics: dict[str, Metric] = {}
    for one in scored:
        metrics |= _named(one)
    means, mean_differences = _means(counted)
    metrics |= {f"{MEAN}/{_key(system)}{name}": m for system, own in means.items() for name, m in own.items()}
    for key, difference in mean_differences.items():
        metrics |= {f"{MEAN}/{name}": m for name, m in difference.named(f"{key}_{RANKING}").items()}
    headline = _headline(scored, means, mean_differences, title)
    tables = [_model_table(scored, means, title), _baselines_table(scored, means, mean_differences, title)]
    if any(one.test.alone for one in scored):
        tables.append(_alone_table([one.test for one in scored], title))
    examples = [example for test in tests for example in test.examples]
    said = {id_: prediction for test in tests for id_, prediction in test.predictions.items()}
    chosen = choose_examples(examples, said, num_examples) if num_examples else []
    if chosen:
        tables.append(predictions_table(chosen, said, title="predictions to judge"))
    samples = [sample_row(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [said[e.id]]]
    return Report(
        metrics=metrics,
        headline=(headline,),
        tables=tuple(tables),
        notes=tuple(_verdicts(counted)),
        samples=tuple(samples),
        lines=tuple(_telling(tests)),
    )


def _score(test: DomainTest, number: int, num_resamples: int) -> _Scored:
    systems = {MODEL: test.predictions} | {one.key: one.predictions for one in test.baselines}
    outcomes = {name: join(test.examples, said) for name, said in systems.items()}
    # The seed is the domain's own: resamples of two domains have nothing to do with each other.
    draws = {
        name: draw_domains([(own.groups, statistic(own))], num_resamples=num_resamples, seed=number)[0]
        for name, own in outcomes.items()
    }
    metrics = {name: score(own, num_resamples=num_resamples, seed=number).metrics for name, own in outcomes.items()}
    differences = {
        name: difference
        for name in systems
        if name != MODEL and (difference := draws[MODEL].minus(draws[name]).get(RANKING)) is not None
    }
    return _Scored(test, metrics, draws, differences)


def _key(system: str) -> str:
    return "" if system == MODEL else f"{system}_"


def _named(one: _Scored) -> dict[str, Metric]:
    found = {f"{one.test.name}/{name}": metric for name, metric in one.metrics[MODEL].items()}
    for system, metrics in one.metrics.items():
        if system != MODEL:
            found |= {f"{one.test.name}/{system}_{name}": metrics[name] for name in SHOWN if name in metrics}
    for system, difference in one.differences.items():
        named = difference.named(f"{system}_{RANKING}")
        found |= {f"{one.test.name}/{name}": metric for name, metric in named.items()}
    for kind, metric in one.test.alone.items():
        found[f"{one.test.name}/without_knowledge/{kind.replace(',', '').replace(' ', '_')}_{RANKING}"] = metric
    return found


def _means(scored: Sequence[_Scored]) -> tuple[dict[str, dict[str, Metric]], dict[str, Difference]]:
    """Averages over the domains: each system's metrics, and the model's AUROC less each baseline's."""
    everywhere = [name for name in (scored[0].draws if scored else ()) if all(name in one.draws for one in scored)]
    by_system = {system: [one.draws[system] for one in scored] for system in everywhere}
    means: dict[str, dict[str, Metric]] = {}
    for system, draws in by_system.items():
        means[system] = {n: one.metric for n in SHOWN if (one := mean_metric(draws, n)) is not None}
    differences = {
        system: found
        for system, draws in by_system.items()
        if system != MODEL and (found := mean_difference(by_system[MODEL], draws, RANKING)) is not None
    }
    return means, differences


def _headline(
    scored: Sequence[_Scored],
    means: Mapping[str, Mapping[str, Metric]],
    mean_differences: Mapping[str, Difference],
    title: str,
) -> Table:
    """Shows the model's AUROC in each domain beside the baseline that is best there; four columns fit 80 characters."""
    heads = ("model", "best baseline", "model less it")
    table = figures_table(f"{title}: AUROC in percent", "domain", heads, no_wrap=["model", "model less it"])
    for beside in (False, True):
        for one in (each for each in scored if each.test.beside == beside):
            names = {baseline.key: baseline.name for baseline in one.test.baselines}
            cells = _beside_best(one.metrics, one.differences, names)
            table.add_row(Text(harmless(f"{one.test.title}{' *' if beside else ''}")), *cells)
        table.add_section()
    names = {baseline.key: baseline.name for one in scored for baseline in one.test.baselines}
    table.add_row(Text(MEAN, style="bold"), *_beside_best(means, mean_differences, names))
    lines = ["95% intervals over groups, differences paired; baselines are fitted on other domains, the best is"]
    lines[0] += " chosen on these rows"
    table.caption = Text("\n".join(lines + ["* beside, not in the mean"] * any(one.test.beside for one in scored)))
    return table


def _beside_best(
    metrics: Mapping[str, Mapping[str, Metric]], differences: Mapping[str, Difference], names: Mapping[str, str]
) -> list[str]:
    own = percent(metrics.get(MODEL, {}).get(RANKING))
    if not differences:
        return [own, "-", "-"]
    key = min(differences, key=lambda key: differences[key].value)
    best, difference = percent(metrics[key][RANKING], bounds=False), differences[key]
    return [own, f"{harmless(names[key])} {best}", percent(difference.metric)]


def _model_table(scored: Sequence[_Scored], means: Mapping[str, Mapping[str, Metric]], title: str) -> Table:
    table = figures_table(f"{title}, percent", "domain", ["rows", "groups", *SHOWN.values(), "seen"], min_width=12)
    for beside in (False, True):
        for one in (each for each in scored if each.test.beside == beside):
            groups = len({example.group for example in one.test.examples})
            seen = "?" if one.test.num_seen is None else f"{one.test.num_seen:,}"
            cells = [percent(one.metrics[MODEL].get(name)) for name in SHOWN]
            name = f"{one.test.title}{' *' if beside else ''}"
            table.add_row(harmless(name), f"{len(one.test.examples):,}", f"{groups:,}", *cells, seen)
        table.add_section()
    table.add_row(Text(MEAN, style="bold"), "", "", *(percent(means.get(MODEL, {}).get(name)) for name in SHOWN), "")
    lines = ["95% intervals over groups, of the mean over groups within each domain; seen: rows that the model knew"]
    table.caption = Text("\n".join(lines + ["* beside, not in the mean"] * any(one.test.beside for one in scored)))
    return table


def _baselines_table(
    scored: Sequence[_Scored],
    means: Mapping[str, Mapping[str, Metric]],
    mean_differences: Mapping[str, Difference],
    title: str,
) -> Table:
    """Shows each baseline's AUROC and macro-F1 by domain, and the model's AUROC less it."""
    heads = ("AUROC", "macro-F1", "model less it", "p")
    table = figures_table(f"{title}: AUROC less each baseline's, percent", "domain", heads, no_wrap=["p"], min_width=19)
    names: dict[str, str] = {}
    for one in scored:
        table.add_row(Text(harmless(one.test.title), style="bold"))
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
    return harmless("; ".join(dict.fromkeys(one.fitted_on for one in test.baselines)))


def _cells(name: str, metrics: Mapping[str, Metric], difference: Difference | None) -> list[str]:
    figures = [percent(metrics.get(RANKING)), percent(metrics.get("macro_f1"), bounds=False)]
    less = ["-", "-"] if difference is None else [percent(difference.metric), format_p(difference.p_value)]
    return [f"  {harmless(name)}", *figures, *less]


def _alone_table(tests: Sequence[DomainTest], title: str) -> Table:
    kinds = list(dict.fromkeys(kind for test in tests for kind in test.alone))
    table = figures_table(f"{title}: what decides each set without the knowledge, AUROC in percent", "domain", kinds)
    for test in tests:
        table.add_row(harmless(test.title), *(percent(test.alone.get(kind)) for kind in kinds))
    line = "logistic regressions on the response (knowledge length: on that length) by folds of groups; 50 is nothing"
    table.caption = Text(line)
    return table


def _verdicts(scored: Sequence[_Scored]) -> list[str]:
    """Says on how many domains the model is above, and below, the baseline that is best there."""
    judged = [one for one in scored if one.differences]
    if not judged:
        return []
    best = {one.test.name: min(one.differences.values(), key=lambda difference: difference.value) for one in judged}
    above = [name for name, difference in best.items() if difference.low > 0]
    below = [name for name, difference in best.items() if difference.high < 0]
    line = f"against the best baseline of each domain: clearly above on {len(above)} of {len(judged)}"
    return [f"{line}{_listed(above)}, clearly below on {len(below)}{_listed(below)}"]


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _telling(tests: Sequence[DomainTest]) -> list[str]:
    return [
        f"{test.title}: words that tell hallucinated: {_quoted(hallucinated)}; faithful: {_quoted(faithful)}"
        for test in tests
        for hallucinated, faithful in [test.telling]
        if hallucinated or faithful
    ]


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{harmless(word, 40)}'" for word in words)
