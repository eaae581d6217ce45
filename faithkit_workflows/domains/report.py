"""The report over domains: a model beside its baselines in each, their paired differences, and the means."""

from collections.abc import Sequence

from faithkit.metrics.classification import classification_metrics, classification_statistic
from faithkit.metrics.outcomes import join_outcomes
from faithkit.pages.tables import choose_examples, escape_terminal, predictions_table
from faithkit.reports.report import Report, build_sample
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric
from faithkit_workflows.domains.abstaining import abstaining
from faithkit_workflows.domains.mean import draw_domains, mean_difference, mean_metric
from faithkit_workflows.domains.tables import (
    MEAN,
    MODEL,
    RANKING,
    SHOWN,
    ScoredDomain,
    alone_table,
    baselines_table,
    headline,
    model_table,
)
from faithkit_workflows.domains.tested import DomainTest


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
        metrics |= {f"{MEAN}/{name}": m for name, m in difference.to_metrics(f"{key}_{RANKING}").items()}
    unsure, abstaining_tables, unsure_notes = abstaining(tests, title=title, num_resamples=num_resamples)
    metrics |= unsure
    tables = [
        model_table(scored, means, title),
        baselines_table(scored, means, mean_differences, title),
        *abstaining_tables,
    ]
    if any(one.test.alone for one in scored):
        tables.append(alone_table([one.test for one in scored], title))
    examples = [example for test in tests for example in test.examples]
    said = {id_: prediction for test in tests for id_, prediction in test.predictions.items()}
    chosen = choose_examples(examples, said, num_examples) if num_examples else []
    if chosen:
        tables.append(predictions_table(chosen, said, title="predictions to judge"))
    samples = [build_sample(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [said[e.id]]]
    return Report(
        metrics=metrics,
        headline=(headline(scored, means, mean_differences, title),),
        tables=tuple(tables),
        notes=(*_verdicts(counted), *unsure_notes),
        samples=tuple(samples),
        lines=tuple(_telling(tests)),
    )


def _score(test: DomainTest, number: int, num_resamples: int) -> ScoredDomain:
    systems = {MODEL: test.predictions} | {one.key: one.predictions for one in test.baselines}
    outcomes = {name: join_outcomes(test.examples, said) for name, said in systems.items()}
    # The seed is the domain's own: resamples of two domains have nothing to do with each other.
    draws = {
        name: draw_domains([(own.groups, classification_statistic(own))], num_resamples=num_resamples, seed=number)[0]
        for name, own in outcomes.items()
    }
    metrics = {
        name: classification_metrics(own, num_resamples=num_resamples, seed=number).metrics
        for name, own in outcomes.items()
    }
    differences = {
        name: difference
        for name in systems
        if name != MODEL and (difference := draws[MODEL].subtract(draws[name]).get(RANKING)) is not None
    }
    return ScoredDomain(test, metrics, draws, differences)


def _key(system: str) -> str:
    return "" if system == MODEL else f"{system}_"


def _named(one: ScoredDomain) -> dict[str, Metric]:
    found = {f"{one.test.name}/{name}": metric for name, metric in one.metrics[MODEL].items()}
    for system, metrics in one.metrics.items():
        if system != MODEL:
            found |= {f"{one.test.name}/{system}_{name}": metrics[name] for name in SHOWN if name in metrics}
    for system, difference in one.differences.items():
        named = difference.to_metrics(f"{system}_{RANKING}")
        found |= {f"{one.test.name}/{name}": metric for name, metric in named.items()}
    for kind, metric in one.test.alone.items():
        found[f"{one.test.name}/without_knowledge/{kind.replace(',', '').replace(' ', '_')}_{RANKING}"] = metric
    return found


def _means(scored: Sequence[ScoredDomain]) -> tuple[dict[str, dict[str, Metric]], dict[str, Difference]]:
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


def _verdicts(scored: Sequence[ScoredDomain]) -> list[str]:
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
    return ", ".join(f"'{escape_terminal(word, 40)}'" for word in words)
