"""Runs `benchmark=domains`: one detector, or given predictions, on every domain, with baselines of other domains.

The interval of a mean resamples groups within each domain. The domains themselves are not resampled: it is the interval
of the mean over these domains, not over all possible ones.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import Baseline
from faithkit.files.cache import cache_dir
from faithkit.files.jsonl import JsonlAppender, read_jsonl, read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import Outcomes, align_predictions, evaluate_labels, join_outcomes, safe_ratio
from faithkit.packages import environment
from faithkit.pages.page_tables import (
    bold,
    choose_examples,
    escape_terminal,
    format_p,
    format_percent,
    new_number_table,
    predictions_table,
)
from faithkit.provenance.used_model import UsedModel, describe_model, find_leaks
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance, Report, build_sample, metrics_without_leaked, score_table
from faithkit.reports.write_reports import EvaluationResult, ReportOptions, write_reports
from faithkit.scores.board import Board
from faithkit.scores.measures import CLASSIFICATION, titles_of
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.bootstrap import Difference, Resamples, bootstrap
from faithkit.statistics.metric import PROPORTION, Metric, full_names, write_results
from faithkit.statistics.spread import Values
from faithkit_workflows.answering.write_answers import predict_and_write, read_provenance, write_given
from faithkit_workflows.benchmarks.configured import load_configured
from faithkit_workflows.domains.baselines import DomainBaselines, Features, measure_response_only
from faithkit_workflows.domains.domain_rows import read_all_domains
from faithkit_workflows.settings.benchmark_blocks import DEV

COVERAGES = (100, 80, 50)  # percent of the rows that are judged, the most confident first
CONFIDENCE = 0.9  # of `abstain_at`
SHOWN = titles_of(("macro_f1", "auroc", "average_precision", "ece"))
RANKING, MEAN, MODEL = "auroc", "mean", "model"
NAME, ACCESSES = "domains", "test_accesses.jsonl"
log = logging.getLogger("faithkit")


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
class Scores:
    """The figures of a domain, or of the mean over domains.

    Args:
        metrics: By system, then metric.
        differences: The model's AUROC minus each baseline's, by the baseline's key.
    """

    metrics: Mapping[str, Mapping[str, Metric]]
    differences: Mapping[str, Difference]

    def name_metrics(self, domain: str, coverage: Mapping[str, Metric]) -> Iterator[tuple[str, Metric]]:
        """Names all metrics, such as `wow/auroc`, `wow/overlap_auroc` and `wow/difference/overlap_auroc`."""
        of_model = {**self.metrics.get(MODEL, {}), **coverage}
        yield from ((f"{domain}/{name}", metric) for name, metric in of_model.items())
        for key, metrics in self.metrics.items():
            if key != MODEL:
                yield from ((f"{domain}/{key}_{name}", metrics[name]) for name in SHOWN if name in metrics)
        for key, difference in self.differences.items():
            found = difference.to_metrics(f"{key}_{RANKING}")
            yield from ((f"{domain}/{name}", metric) for name, metric in found.items())


@dataclass(frozen=True, slots=True)
class ScoredDomain:
    """A domain with its figures.

    Args:
        coverage: The model's accuracy on its most confident rows; empty where it gives no probabilities.
        board: Has the resamples, for means over domains.
    """

    test: DomainTest
    scores: Scores
    coverage: Mapping[str, Metric]
    board: Board


def score_mean(domains: Sequence[ScoredDomain]) -> Scores:
    """Averages over the domains that are not extra."""
    boards = [domain.board for domain in domains if not domain.test.extra]
    systems = [key for key in (boards[0].systems if boards else ()) if all(key in one.systems for one in boards)]
    draws = {key: [board.resamples(key) for board in boards] for key in systems}
    means = {key: {name: average_domains(of_system, name) for name in SHOWN} for key, of_system in draws.items()}
    metrics = {
        key: {name: mean.metric for name, mean in of_system.items() if mean is not None}
        for key, of_system in means.items()
    }
    differences = {
        key: average_domains(draws[MODEL], RANKING, minus=of_system) for key, of_system in draws.items() if key != MODEL
    }
    return Scores(metrics, {key: difference for key, difference in differences.items() if difference is not None})


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
    # Each domain has its seed, so that the resamples of two domains are independent.
    domains = []
    for seed, test in enumerate(tests):
        board = Board(test.name, num_resamples=num_resamples, seed=seed)
        outcomes = join_outcomes(test.examples, test.predictions)
        board.add(MODEL, evaluate_labels(outcomes))
        for one in test.baselines:
            board.add(one.key, evaluate_labels(join_outcomes(test.examples, one.predictions)))
        minus = {one.key: board.subtract(MODEL, one.key, [RANKING]).get(RANKING) for one in test.baselines}
        differences = {key: difference for key, difference in minus.items() if difference is not None}
        scores = Scores({key: board.metrics(key) for key in board.systems}, differences)
        coverage = measure_coverage(outcomes, num_resamples=num_resamples, seed=seed)
        domains.append(ScoredDomain(test, scores, coverage, board))
    mean = score_mean(domains)
    metrics: dict[str, Metric] = {}
    for domain in domains:
        metrics |= domain.scores.name_metrics(domain.test.name, domain.coverage)
        for kind, metric in domain.test.response_only.items():
            name = kind.replace(",", "").replace(" ", "_")
            metrics[f"{domain.test.name}/without_knowledge/{name}_{RANKING}"] = metric
    metrics |= mean.name_metrics(MEAN, {})
    names = {baseline.key: baseline.name for test in tests for baseline in test.baselines}
    tables = [_model_table(domains, mean, title), _baselines_table(domains, mean, names, title)]
    if any(domain.coverage for domain in domains):
        heads = {f"accuracy_at_{coverage}": f"{coverage}%" for coverage in COVERAGES}
        heads |= {"judged_at_90": "judged at 0.9", "accuracy_judged_at_90": "right of these"}
        covered = ((one.test.row_title, one.coverage) for one in domains if one.coverage)
        line = "accuracy over the most confident 100, 80, 50% (ties included), and over those of at least 0.9"
        head = f"{title}: where it may abstain, percent"
        tables.append(score_table(head, "domain", heads, covered, caption=[line]))
    if any(test.response_only for test in tests):
        kinds = list(dict.fromkeys(kind for test in tests for kind in test.response_only))
        rows = ((test.title, test.response_only) for test in tests)
        line = (
            "logistic regressions on the response (knowledge length: on that length) by folds of groups; 50 is chance"
        )
        head = f"{title}: prediction without the knowledge, AUROC in percent"
        tables.append(score_table(head, "domain", kinds, rows, caption=[line]))
    examples = [example for test in tests for example in test.examples]
    predictions = {id_: prediction for test in tests for id_, prediction in test.predictions.items()}
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if chosen:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    best = {
        domain.test.name: min(domain.scores.differences.values(), key=lambda difference: difference.value)
        for domain in domains
        if domain.scores.differences and not domain.test.extra
    }
    above = [name for name, difference in best.items() if difference.low > 0]
    below = [name for name, difference in best.items() if difference.high < 0]
    first, last = (f" ({', '.join(names)})" if names else "" for names in (above, below))
    counts = f"clearly above on {len(above)} of {len(best)}{first}, clearly below on {len(below)}{last}"
    pairs = [(example, predictions[example.id]) for example in chosen]
    return Report(
        metrics=metrics,
        headline=(_headline_table(domains, mean, names, title),),
        tables=tuple(tables),
        notes=(f"against the best baseline of each domain: {counts}",) if best else (),
        samples=tuple(build_sample(e, gold=e.label, label=p.label, score=p.score) for e, p in pairs),
    )


def _headline_table(domains: Sequence[ScoredDomain], mean: Scores, names: Mapping[str, str], title: str) -> Table:
    """Shows the model's AUROC in each domain and the best baseline there; four columns fit 80 characters."""

    def cells(scores: Scores) -> list[str]:
        model, differences = format_percent(scores.metrics.get(MODEL, {}).get(RANKING)), scores.differences
        if not differences:
            return [model, "-", "-"]
        key = min(differences, key=lambda key: differences[key].value)
        best = format_percent(scores.metrics[key][RANKING], bounds=False)
        return [model, f"{escape_terminal(names[key])} {best}", format_percent(differences[key].metric)]

    line = (
        "95% intervals over groups, differences paired; baselines are fitted on other domains, the best is chosen on "
        "these rows"
    )
    title, heads = f"{title}: AUROC in percent", ("model", "best baseline", "model - baseline")
    of_domains = [cells(domain.scores) for domain in domains]
    return _domain_table(title, heads, domains, of_domains, cells(mean), line, no_wrap=["model", "model - baseline"])


def _domain_table(
    title: str,
    heads: Sequence[str],
    domains: Sequence[ScoredDomain],
    cells: Sequence[Sequence[str]],
    mean: Sequence[str],
    line: str,
    **options: Any,
) -> Table:
    """Makes a table with a row for each domain, extra ones last, and one for the mean; `line` is its caption."""
    rows: list[Sequence[str | Text] | None] = []
    for extra in (False, True):
        for domain, of_domain in zip(domains, cells, strict=True):
            if domain.test.extra == extra:
                rows.append([domain.test.row_title, *of_domain])
        rows.append(None)
    rows.append([bold(MEAN), *mean])
    lines = [line, *["* extra domain, not in the mean"] * any(domain.test.extra for domain in domains)]
    return new_number_table(title, "domain", heads, rows, caption=lines, **options)


def _model_table(domains: Sequence[ScoredDomain], mean: Scores, title: str) -> Table:
    """Shows the model's metrics in each domain and in the mean, and how many rows it was trained on."""

    *of_domains, of_mean = (
        [format_percent(scores.metrics.get(MODEL, {}).get(name)) for name in SHOWN]
        for scores in (*(domain.scores for domain in domains), mean)
    )
    cells = []
    for test, figures in zip((domain.test for domain in domains), of_domains, strict=True):
        seen, groups = "?" if test.seen is None else f"{test.seen.sum():,}", {one.group for one in test.examples}
        cells.append([f"{len(test.examples):,}", f"{len(groups):,}", *figures, seen])
    line = "95% intervals over groups, of the mean over groups within each domain; seen: rows the model was trained on"
    heads, mean_cells = ["rows", "groups", *SHOWN.values(), "seen"], ["", "", *of_mean, ""]
    return _domain_table(f"{title}, percent", heads, domains, cells, mean_cells, line, min_width=12)


def _baselines_table(domains: Sequence[ScoredDomain], mean: Scores, names: Mapping[str, str], title: str) -> Table:
    """Shows each baseline's AUROC and macro-F1 by domain, and the model's AUROC minus it."""

    rows: list[Sequence[str | Text] | None] = []
    for head, scores in [*((domain.test.title, domain.scores) for domain in domains), (MEAN, mean)]:
        rows.append([bold(head)])
        for key in (key for key in names if key in scores.metrics):
            metrics, difference = scores.metrics[key], scores.differences.get(key)
            values = [format_percent(metrics.get(RANKING)), format_percent(metrics.get("macro_f1"), bounds=False)]
            tests = (format_percent(difference.metric), format_p(difference.p_value)) if difference else ("-", "-")
            rows.append([f"  {escape_terminal(names[key])}", *values, *tests])
        if scores is not mean:
            rows.append(None)
    lines = (
        f"{domain.test.title}: fitted on "
        + escape_terminal("; ".join(dict.fromkeys(one.fitted_on for one in domain.test.baselines)))
        for domain in domains
        if domain.test.baselines
    )
    title, heads = f"{title}: AUROC minus each baseline's, percent", ("AUROC", "macro-F1", "model - baseline", "p")
    return new_number_table(title, "domain", heads, rows, caption=lines, no_wrap=["p"], min_width=19)


def run_domains(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the domains, predicts their rows, fits the baselines, and writes the results."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    part = block["part"]
    domains = read_all_domains(block)
    tested = {name: rows.select_part(part) for name, rows in domains.items()}
    is_access = part != DEV and block["path"] != EMBEDDED  # scoring uses held-out labels of the real corpora
    if is_access:
        accessed = {"by": str(config["checkpoint"] or config["predictions"])}
        with JsonlAppender(cache_dir("domains") / ACCESSES) as file:
            for name in tested:
                file.append({"domain": name, **accessed, "at": datetime.now(UTC).isoformat(timespec="seconds")})
    inputs = [example for rows in tested.values() for example in rows.inputs]
    predictions, models, notes = _predict(run, config, inputs)
    features = Features(run.path / "features", encoder=block["encoder"])
    baselines = DomainBaselines(domains, features, nli=block["nli"], max_fit_rows=block["max_fit_rows"])
    tests: list[DomainTest] = []
    test_sets: dict[str, Any] = {}
    without_leaked: dict[str, Metric] = {}
    for name, rows in tested.items():
        log.info("%s: fitting its baselines on other domains", name)
        domain = domains[name].domain
        origin = Provenance.of(name, rows.originals, models)
        of_domain = {example.id: predictions[example.id] for example in rows.inputs}
        fitted = baselines.fit(name, rows.inputs, part)
        is_known = models and all(leaks is not None for leaks in origin.leaks)
        tests.append(
            DomainTest(
                name=name,
                title=domain.title,
                examples=rows.inputs,
                predictions=of_domain,
                baselines=fitted,
                extra=domain.extra,
                response_only=measure_response_only(rows.inputs, num_resamples=num_resamples),
                related_domains=domain.related_domains,
                seen=origin.leaked if is_known else None,
            )
        )
        outcomes = join_outcomes(rows.inputs, of_domain)
        found = metrics_without_leaked(outcomes, origin.leaked, num_resamples=num_resamples)
        without_leaked |= {f"{name}/{metric}": value for metric, value in found.items()}
        test_sets[name] = origin.to_dict() | {"baselines": {one.key: one.facts for one in fitted}}
    for name, rows in tested.items():  # rows that the NLI model was trained on
        nli = baselines.find_nli(name)
        known = describe_model(nli).seen if nli else None
        if known is not None and (number := int(find_leaks(rows.originals, known).rows.sum())):
            what = f"the NLI model was trained on {number:,} of {len(rows):,} rows of {name}"
            notes.append(f"{what}, so NLI alone is not a fair baseline there: benchmark.domains.{name}.nli=OTHER")
    options = {"num_resamples": num_resamples, "num_examples": config["num_examples"]}
    report = report_domains(tests, title=f"test/{NAME} ({part})", **options)
    since = count_test_accesses()
    accesses = {name: {"before": rows.domain.test_accesses, "held": since[name]} for name, rows in domains.items()}
    metrics = full_names("test", NAME, {**report.metrics, **without_leaked})
    meta = {"config": config, "part": part, "test_accesses": accesses, "environment": environment()}
    write_results(run.metrics, metrics, {**meta, "test_sets": test_sets})
    held = ", ".join(f"{name} {counts['held']}" for name, counts in accesses.items() if counts["held"])
    kind = "a test access, counted" if is_access else "embedded held-out rows, not counted"
    accessed_part = "rows of the dev half" if part == DEV else f"part {part}: {kind}"
    lines = (f"{accessed_part}; test accesses so far: {held or 'none'}", *(f"note: {note}" for note in notes))
    facts = {"models": [model for test_set in test_sets.values() for model in test_set["models"]]}
    answers = {
        name: [Report(metrics={}, answers=[(example, predictions[example.id]) for example in rows.inputs])]
        for name, rows in tested.items()
    }
    complete = replace(report, lines=(*lines, *report.lines), alerts=lines, facts=facts)
    write_reports(run, {NAME: [complete], **answers}, ReportOptions.of(config))
    return EvaluationResult(metrics, {NAME: report.samples})


def _predict(
    run: RunFolder, config: Mapping[str, Any], inputs: list[Example]
) -> tuple[Mapping[str, Prediction], list[UsedModel], list[str]]:
    """Returns the predictions of all rows, the models that made them, and notes."""
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = read_provenance(config["predictions"], NAME, inputs, checkpoint=config["checkpoint"])
        kept = {example.id: given[example.id] for example in inputs if example.id in given}
        align_predictions(inputs, kept)  # reports missing predictions before any work
        write_given(run.predictions / f"{NAME}.jsonl", inputs, kept, texts=config["save_texts"])
        return kept, list(origin.models), list(origin.notes)
    loaded = load_configured(config)
    predictions, _ = predict_and_write(run, config, NAME, inputs, loaded)
    return predictions, loaded.models, []


def count_test_accesses() -> Counter[str]:
    """Counts the accesses to each domain's held-out rows so far."""
    path = cache_dir("domains") / ACCESSES
    return Counter(str(row["domain"]) for row in read_jsonl(path)) if path.exists() else Counter()
