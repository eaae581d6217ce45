"""Baselines that are fitted for a domain on other domains only."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from faithkit.baselines.word_features import Values
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.domains.baselines import THRESHOLD, DomainBaselines, Features, fit_regression
from faithkit_workflows.domains.domain_rows import DomainRows, Rows, read_all_domains
from faithkit_workflows.settings.benchmark_blocks import DEV
from tests.running import plain_config


def draw_rows(seed: int, size: int = 200, share: float = 0.5, sign: float = 1.0) -> tuple[Values, Values]:
    """Draws rows whose first feature predicts the label, with this sign."""
    generator = np.random.default_rng(seed)
    gold = np.arange(size) < share * size
    return np.column_stack([sign * (gold + generator.normal(0, 0.4, size)), generator.normal(0, 1, size)]), gold


def test_a_baseline_orders_a_domain_that_it_was_not_trained_on() -> None:
    features, gold = draw_rows(9)
    scores = fit_regression([draw_rows(1), draw_rows(2)]).predict_proba(features)[:, 1]
    assert scores[gold].mean() > scores[~gold].mean() + 0.3
    turned = fit_regression([draw_rows(1, sign=-1), draw_rows(2, sign=-1)]).predict_proba(features)[:, 1]
    assert turned[gold].mean() < turned[~gold].mean()


def test_a_threshold_calls_both_classes_where_the_largest_domain_is_nearly_all_hallucinated() -> None:
    features, gold = draw_rows(9)
    model = fit_regression([draw_rows(1, 2000, 0.95), draw_rows(2, 100), draw_rows(3, 100)])
    called = model.predict_proba(features)[:, 1] >= THRESHOLD
    assert called[gold].mean() > 0.7 and (~called[~gold]).mean() > 0.7


def with_other_labels(rows: DomainRows, label: str | None = None) -> DomainRows:
    """Gives all rows one label, or each the other one."""
    other = {HALLUCINATED: FAITHFUL, FAITHFUL: HALLUCINATED}
    halves = {
        half: Rows(part.originals, tuple(replace(row, label=label or other[str(row.label)]) for row in part.inputs))
        for half, part in rows.halves.items()
    }
    return replace(rows, halves=halves)


def fit(domains: Mapping[str, DomainRows], name: str, folder: Path) -> dict[str, list[float | None]]:
    """Fits the baselines of a domain; gives the scores of its rows by baseline, and checks the domains learnt from."""
    baselines = DomainBaselines(domains, Features(folder), nli=None, max_fit_rows=60)
    fitted = baselines.fit(name, domains[name].select_part(DEV).inputs, DEV)
    assert all(not domains[name].domain.related_domains & set(one.facts["trained_on"]) for one in fitted)
    return {one.key: [row.score for row in one.predictions.values()] for one in fitted}


def test_a_baseline_depends_neither_on_its_domain_nor_on_related_ones(tmp_path: Path) -> None:
    config = plain_config("evaluate", "benchmark=domains", "benchmark.only=[xsum,snli,conjnli]")
    read = read_all_domains(config["benchmark"])
    pair = frozenset({"snli", "conjnli"})
    domains = read | {n: replace(read[n], domain=replace(read[n].domain, related_domains=pair)) for n in pair}
    turned = domains | {name: with_other_labels(domains[name]) for name in pair}
    before = fit(domains, "snli", tmp_path)
    assert before == fit(turned, "snli", tmp_path)
    assert before.keys() == {"overlap", "grams", "mismatch", "length", "regression"}
    assert fit(domains, "xsum", tmp_path) != fit(turned, "xsum", tmp_path)
    of_one_class = domains | {"xsum": with_other_labels(domains["xsum"], FAITHFUL)}
    assert fit(of_one_class, "snli", tmp_path) == {}, "no domain with both classes is left to learn from"
