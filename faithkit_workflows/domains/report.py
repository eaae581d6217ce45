"""Scores a model and its baselines on each domain, averages over the domains, and reports it all.

The interval of a mean resamples groups within each domain. The domains themselves are not resampled: it is the interval
of the mean over these domains, not over all possible ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import Baseline
from faithkit.metrics.classification import evaluate_labels, safe_ratio
from faithkit.metrics.outcomes import Outcomes, join_outcomes
from faithkit.pages.page_tables import (
    bold,
    choose_examples,
    escape_terminal,
    format_p,
    format_percent,
    new_number_table,
    predictions_table,
)
from faithkit.records import Example, Prediction
from faithkit.reports.report import Report, build_sample
from faithkit.reports.score_table import score_table
from faithkit.scores.board import Board
from faithkit.scores.measures import CLASSIFICATION, titles_of
from faithkit.statistics.bootstrap import Difference, Resamples, bootstrap
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.spread import Values

COVERAGES = (100, 80, 50)  # percent of the rows that are judged, the most confident first
CONFIDENCE = 0.9  # of `abstain_at`
SHOWN = titles_of(("macro_f1", "auroc", "average_precision", "ece"))
RANKING, MEAN, MODEL = "auroc", "mean", "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTest:
    """The tested rows of one domain with the predictions of a model and of baselines.

    Args:
        title: Its name in tables.
        extra: Shown, and left out of the means.
        related_domains: Names of the domains that share texts, corpora or authors with it.
        response_only: AUROC of classifiers that do not see the knowledge, by kind of features.
        seen: Marks the rows that the model was trained on [N]; None if this is unknown.
    """

    name: str
    title: str
    examples: Sequence[Example]
    predictions: Mapping[str, Prediction]
    baselines: Sequence[Baseline] = ()
    extra: bool = False
    related_domains: frozenset[str] = frozenset()
    response_only: Mapping[str, Metric] = field(default_factory=dict)
    seen: NDArray[np.bool_] | None = None

    @property
    def row_title(self) -> str:
        """The title in a table, with a star for an extra domain."""
        return escape_terminal(f"{self.title}{' *' if self.extra else ''}")


@dataclass(frozen=True, slots=True)
class ScoredDomain:
    """A domain's metrics by system, and the resamples that paired differences are computed from.

    Args:
        coverage: The model's accuracy on its most confident rows; empty where it gives no probabilities.
        differences: The model's AUROC minus each baseline's, by the baseline's key.
    """

    test: DomainTest
    metrics: dict[str, dict[str, Metric]]
    coverage: dict[str, Metric]
    draws: dict[str, Resamples]
    differences: dict[str, Difference]


@dataclass(frozen=True, slots=True)
class DomainScores:
    """The scored domains with the means over those that are not extra.

    Args:
        means: By system, then metric.
        mean_differences: By the baseline's key.
    """

    domains: Sequence[ScoredDomain]
    means: Mapping[str, Mapping[str, Metric]]
    mean_differences: Mapping[str, Difference]

    def to_metrics(self) -> dict[str, Metric]:
        """Lists all metrics by name, such as `wow/auroc`, `wow/difference/overlap_auroc` and `mean/auroc`."""
        metrics: dict[str, Metric] = {}
        for domain in self.domains:
            name = domain.test.name
            of_model = domain.metrics[MODEL] | domain.coverage
            metrics |= {f"{name}/{metric}": value for metric, value in of_model.items()}
            for key, of_baseline in domain.metrics.items():
                if key != MODEL:
                    metrics |= {f"{name}/{key}_{one}": of_baseline[one] for one in SHOWN if one in of_baseline}
            metrics |= _difference_metrics(name, domain.differences)
            for kind, metric in domain.test.response_only.items():
                metrics[f"{name}/without_knowledge/{kind.replace(',', '').replace(' ', '_')}_{RANKING}"] = metric
        for key, of_system in self.means.items():
            prefix = "" if key == MODEL else f"{key}_"
            metrics |= {f"{MEAN}/{prefix}{metric}": value for metric, value in of_system.items()}
        return metrics | _difference_metrics(MEAN, self.mean_differences)


def _difference_metrics(domain: str, differences: Mapping[str, Difference]) -> dict[str, Metric]:
    return {
        f"{domain}/{name}": metric
        for key, difference in differences.items()
        for name, metric in difference.to_metrics(f"{key}_{RANKING}").items()
    }


def score_domains(tests: Sequence[DomainTest], *, num_resamples: int = 1000) -> DomainScores:
    """Scores every domain and averages over those that are not extra."""
    # Each domain has its seed, so that the resamples of two domains are independent.
    scored = [_score_domain(test, seed, num_resamples) for seed, test in enumerate(tests)]
    counted = [domain for domain in scored if not domain.test.extra]
    systems = [key for key in (counted[0].draws if counted else ()) if all(key in one.draws for one in counted)]
    draws = {key: [domain.draws[key] for domain in counted] for key in systems}
    means = {
        key: {name: mean.metric for name in SHOWN if (mean := average_domains(of_system, name)) is not None}
        for key, of_system in draws.items()
    }
    differences = {
        key: difference
        for key, of_system in draws.items()
        if key != MODEL and (difference := average_domains(draws[MODEL], RANKING, minus=of_system)) is not None
    }
    return DomainScores(scored, means, differences)


def _score_domain(test: DomainTest, seed: int, num_resamples: int) -> ScoredDomain:
    board = Board(test.name, num_resamples=num_resamples, seed=seed)
    model = join_outcomes(test.examples, test.predictions)
    board.add(MODEL, evaluate_labels(model))
    for one in test.baselines:
        board.add(one.key, evaluate_labels(join_outcomes(test.examples, one.predictions)))
    differences = {
        one.key: difference
        for one in test.baselines
        if (difference := board.subtract(MODEL, one.key, [RANKING]).get(RANKING)) is not None
    }
    return ScoredDomain(
        test=test,
        metrics={key: board.metrics(key) for key in board.systems},
        coverage=measure_coverage(model, num_resamples=num_resamples, seed=seed),
        draws={key: board.resamples(key) for key in board.systems},
        differences=differences,
    )


def average_domains(
    draws: Sequence[Resamples], name: str, minus: Sequence[Resamples] | None = None
) -> Difference | None:
    """Averages a metric over domains, or its paired difference from another system; None if a domain lacks it.

    The p-value is that of the mean against 0, which is meaningful only for differences. The interval of a calibration
    error is corrected for bias, as that of one domain is (`bootstrap`), and stays within [0, 1]. Some bias remains: for
    perfectly calibrated scores the mean over many domains lies above 0, and so may its interval.

    Args:
        minus: The other system's resamples, in the same order.
    """
    systems = [draws, *([minus] if minus is not None else [])]
    if not draws or any(not np.isfinite(one.values.get(name, np.nan)) for of_system in systems for one in of_system):
        return None
    value, *others = (float(np.mean([one.values[name] for one in of_system])) for of_system in systems)
    samples, *other_samples = (np.mean([one.samples[name] for one in of_system], axis=0) for of_system in systems)
    value, samples = value - sum(others), samples - sum(other_samples)
    samples = samples[np.isfinite(samples)]
    if not len(samples):
        return None
    if is_debiased := name in CLASSIFICATION and CLASSIFICATION[name].is_debiased:
        samples = samples - 2 * (samples.mean() - value)  # the bias of the value, and that of resampling it
    tail = min(np.count_nonzero(samples <= 0), np.count_nonzero(samples >= 0))
    low, high = np.quantile(samples, (0.025, 0.975)).clip(*((0, 1) if is_debiased else (-np.inf, np.inf)))
    return Difference(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        p_value=min(1.0, 2 * (tail + 1) / (len(samples) + 1)),
        n=sum(one.num_rows for one in draws),
        num_groups=sum(one.num_groups for one in draws),
    )


def measure_coverage(outcomes: Outcomes, *, num_resamples: int = 1000, seed: int = 0) -> dict[str, Metric]:
    """Measures the accuracy on the most confident rows, ties included, and on those with a confidence of 0.9 or more.

    Returns nothing where a row has no probability.
    """
    if not outcomes.scored.all():
        return {}
    groups, correct = outcomes.groups, outcomes.called == outcomes.gold
    confidence = np.where(outcomes.called == 1, outcomes.scores, 1 - outcomes.scores)
    ordered = np.sort(confidence)[::-1]
    among = {
        f"accuracy_at_{coverage}": confidence >= ordered[ceil(coverage / 100 * len(ordered)) - 1]
        for coverage in COVERAGES
    } | {"accuracy_judged_at_90": confidence >= CONFIDENCE}
    sums = {name: groups.sums(np.stack([correct & rows, rows], axis=1)) for name, rows in among.items()}
    sums["judged_at_90"] = groups.sums(np.stack([confidence >= CONFIDENCE, np.ones(len(confidence), bool)], axis=1))

    def shares(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(*(weights @ counts).T) for name, counts in sums.items()}

    return bootstrap(groups, shares, kinds=PROPORTION, num_resamples=num_resamples, seed=seed).metrics


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


def _headline_table(scores: DomainScores, title: str) -> Table:
    """Shows the model's AUROC in each domain and the best baseline there; four columns fit 80 characters."""
    names = {baseline.key: baseline.name for domain in scores.domains for baseline in domain.test.baselines}
    rows = _rows_by_domain(
        scores,
        lambda domain: _best_baseline_cells(domain.metrics, domain.differences, names),
        _best_baseline_cells(scores.means, scores.mean_differences, names),
    )
    line = (
        "95% intervals over groups, differences paired; baselines are fitted on other domains, the best is chosen on "
        "these rows"
    )
    title, heads = f"{title}: AUROC in percent", ("model", "best baseline", "model - baseline")
    lines = _caption(line, scores.domains)
    return new_number_table(title, "domain", heads, rows, caption=lines, no_wrap=["model", "model - baseline"])


def _rows_by_domain(
    scores: DomainScores, cells: Callable[[ScoredDomain], Sequence[str]], mean: Sequence[str]
) -> Iterator[Sequence[str | Text] | None]:
    """Makes a row of each domain, extra ones last, and one of the mean."""
    for extra in (False, True):
        for domain in scores.domains:
            if domain.test.extra == extra:
                yield [domain.test.row_title, *cells(domain)]
        yield None
    yield [bold(MEAN), *mean]


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

    def cells(domain: ScoredDomain) -> list[str]:
        test = domain.test
        groups = len({example.group for example in test.examples})
        figures = (format_percent(domain.metrics[MODEL].get(name)) for name in SHOWN)
        seen = "?" if test.seen is None else f"{test.seen.sum():,}"
        return [f"{len(test.examples):,}", f"{groups:,}", *figures, seen]

    means = scores.means.get(MODEL, {})
    rows = _rows_by_domain(scores, cells, ["", "", *(format_percent(means.get(name)) for name in SHOWN), ""])
    line = "95% intervals over groups, of the mean over groups within each domain; seen: rows the model was trained on"
    heads, lines = ["rows", "groups", *SHOWN.values(), "seen"], _caption(line, scores.domains)
    return new_number_table(f"{title}, percent", "domain", heads, rows, caption=lines, min_width=12)


def _caption(line: str, domains: Sequence[ScoredDomain]) -> list[str]:
    has_extra = any(domain.test.extra for domain in domains)
    return [line, *["* extra domain, not in the mean"] * has_extra]


def _baselines_table(scores: DomainScores, title: str) -> Table:
    """Shows each baseline's AUROC and macro-F1 by domain, and the model's AUROC minus it."""
    names = {baseline.key: baseline.name for domain in scores.domains for baseline in domain.test.baselines}

    def rows() -> Iterator[Sequence[str | Text] | None]:
        for domain in scores.domains:
            yield [bold(domain.test.title)]
            for one in domain.test.baselines:
                yield _baseline_cells(one.name, domain.metrics[one.key], domain.differences.get(one.key))
            yield None
        yield [bold(MEAN)]
        for key, name in names.items():
            if key in scores.means:
                yield _baseline_cells(name, scores.means[key], scores.mean_differences.get(key))

    lines = (
        f"{domain.test.title}: fitted on "
        + escape_terminal("; ".join(dict.fromkeys(one.fitted_on for one in domain.test.baselines)))
        for domain in scores.domains
        if domain.test.baselines
    )
    title, heads = f"{title}: AUROC minus each baseline's, percent", ("AUROC", "macro-F1", "model - baseline", "p")
    return new_number_table(title, "domain", heads, rows(), caption=lines, no_wrap=["p"], min_width=19)


def _baseline_cells(name: str, metrics: Mapping[str, Metric], difference: Difference | None) -> list[str]:
    values = [format_percent(metrics.get(RANKING)), format_percent(metrics.get("macro_f1"), bounds=False)]
    compared = ["-", "-"] if difference is None else [format_percent(difference.metric), format_p(difference.p_value)]
    return [f"  {escape_terminal(name)}", *values, *compared]


def _coverage_table(scores: DomainScores, title: str) -> Table:
    """Shows the model's accuracy on its most confident rows."""
    heads = {f"accuracy_at_{coverage}": f"{coverage}%" for coverage in COVERAGES}
    heads |= {"judged_at_90": "judged at 0.9", "accuracy_judged_at_90": "right of these"}
    rows = ((one.test.row_title, one.coverage) for one in scores.domains if one.coverage)
    line = "accuracy over the most confident 100, 80, 50% (ties included), and over those of at least 0.9"
    title = f"{title}: where it may abstain, percent"
    return score_table(title, "domain", heads, rows, caption=[line])


def _response_only_table(tests: Sequence[DomainTest], title: str) -> Table:
    """Shows how well each domain's labels can be predicted without the knowledge."""
    kinds = list(dict.fromkeys(kind for test in tests for kind in test.response_only))
    rows = ((test.title, test.response_only) for test in tests)
    line = "logistic regressions on the response (knowledge length: on that length) by folds of groups; 50 is chance"
    title = f"{title}: prediction without the knowledge, AUROC in percent"
    return score_table(title, "domain", kinds, rows, caption=[line])
