"""Measures a detector that may abstain on a domain: accuracy against coverage, and conformal sets.

A conformal set (Vovk et al. 2005; the library crepes) contains every label that cannot be rejected at the required
confidence: one label is a verdict, both are "cannot tell". Each class is calibrated separately, on the rows of the
unrelated domains. The guarantee holds only if the tested domain is like these, and the table shows whether it does.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from crepes import ConformalClassifier
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.outcomes import Outcomes, join_outcomes
from faithkit.pages.page_tables import escape_terminal, format_percent, new_number_table
from faithkit.records import LABELS
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.spread import Statistic, Values
from faithkit_workflows.domains.scores import DomainTest

COVERAGES = (100, 80, 50)  # percent of the rows that are judged, the most confident first
CONFIDENCE = 0.9  # of `abstain_at`, and of conformal sets
MIN_CALIBRATION_ROWS = 20  # of each class
COVERAGE_COLUMNS = {f"accuracy_at_{coverage}": f"{coverage}%" for coverage in COVERAGES} | {
    "judged_at_90": "judged at 0.9",
    "accuracy_judged_at_90": "right of these",
}
SET_COLUMNS = {f"conformal_{label}": f"contain {label}" for label in LABELS} | {
    "conformal_single": "one label",
    "conformal_single_accuracy": "right of these",
}
Marks = NDArray[np.bool_]
Counts = Mapping[str, tuple[Marks, Marks]]  # by metric: the rows that count, and those among which they are counted


def measure_abstention(
    tests: Sequence[DomainTest], *, title: str, num_resamples: int = 1000
) -> tuple[dict[str, Metric], list[Table], list[str]]:
    """Measures every domain whose rows all have a probability; returns metrics, tables and notes.

    Metrics are named `wow/accuracy_at_50`, `wow/conformal_faithful` and so on.
    """
    joined = {test.name: join_outcomes(test.examples, test.predictions) for test in tests}
    outcomes = {name: one for name, one in joined.items() if one.scored.all()}
    found: dict[str, Mapping[str, Metric]] = {}
    for seed, test in enumerate(tests):
        if (tested := outcomes.get(test.name)) is not None:
            others = [other for other in tests if other.name in outcomes and _may_calibrate(other, test)]
            counts = _count_by_coverage(tested) | _count_sets(tested, *_calibration_rows(others, outcomes))
            statistic = _share_statistic(tested.groups, counts)
            scored = bootstrap(tested.groups, statistic, kinds=PROPORTION, num_resamples=num_resamples, seed=seed)
            found[test.name] = scored.metrics
    if not found:
        return {}, [], []
    metrics = {f"{test}/{name}": metric for test, of_test in found.items() for name, metric in of_test.items()}
    shown = [test for test in tests if test.name in found]
    accuracy = "accuracy over the most confident 100, 80, 50% (ties included), and over those of at least 0.9"
    sets = "each class is calibrated on the unrelated domains; how often the sets contain a row's label"
    tables = [
        _table(shown, found, COVERAGE_COLUMNS, f"{title}: where it may abstain, percent", accuracy),
        _table(shown, found, SET_COLUMNS, f"{title}: conformal sets at 90%, percent", sets),
    ]
    return metrics, tables, _check_guarantee(shown, found)


def _count_by_coverage(outcomes: Outcomes) -> dict[str, tuple[Marks, Marks]]:
    """Marks the correct rows among those that are judged, by coverage and by confidence."""
    correct = outcomes.called == outcomes.gold
    confidence = np.where(outcomes.called == 1, outcomes.scores, 1 - outcomes.scores)
    ordered = np.sort(confidence)[::-1]
    counts = {
        f"accuracy_at_{coverage}": (correct, confidence >= ordered[ceil(coverage / 100 * len(ordered)) - 1])
        for coverage in COVERAGES
    }
    confident = confidence >= CONFIDENCE
    every = np.ones_like(confident)
    return counts | {"judged_at_90": (confident, every), "accuracy_judged_at_90": (correct, confident)}


def _may_calibrate(other: DomainTest, test: DomainTest) -> bool:
    """Reports whether a domain's rows may calibrate another's sets: the two are unrelated, and it is not extra."""
    related = other.name in test.related_domains or test.name in other.related_domains
    return other.name != test.name and not other.extra and not related


def _calibration_rows(tests: Sequence[DomainTest], outcomes: Mapping[str, Outcomes]) -> tuple[Values, NDArray[np.int8]]:
    """Collects probabilities and labels of the rows of some domains that the model was not trained on."""
    scores, gold = [np.zeros(0)], [np.zeros(0, np.int8)]
    for test in tests:
        of_test = outcomes[test.name]
        unseen = np.ones(len(of_test.gold), bool) if test.seen is None else ~test.seen
        scores.append(of_test.scores[unseen])
        gold.append(of_test.gold[unseen])
    return np.concatenate(scores), np.concatenate(gold)


def _count_sets(tested: Outcomes, scores: Values, gold: NDArray[np.int8]) -> dict[str, tuple[Marks, Marks]]:
    """Marks the rows whose set contains their label, and those with one label; empty with too few calibration rows."""
    if min(np.bincount(gold, minlength=2)) < MIN_CALIBRATION_ROWS:
        return {}
    # The nonconformity of a label is 1 - its probability [rows, labels].
    calibration, test = (np.stack([values, 1 - values], axis=1) for values in (scores, tested.scores))
    sets = np.concatenate(
        [
            ConformalClassifier()
            .fit(calibration[gold == label, label])
            .predict_set(test[:, [label]], confidence=CONFIDENCE, smoothing=False)
            for label in range(2)
        ],
        axis=1,
    ).astype(bool)
    contained, single = sets[np.arange(len(tested.gold)), tested.gold], sets.sum(axis=1) == 1
    by_class = {f"conformal_{name}": (contained, tested.gold == label) for label, name in enumerate(LABELS)}
    every = np.ones_like(single)
    return by_class | {"conformal_single": (single, every), "conformal_single_accuracy": (contained, single)}


def _share_statistic(groups: Groups, counts: Counts) -> Statistic:
    """Builds the statistic that gives the share of counted rows for weights of groups."""
    among = {name: groups.sums(rows) for name, (_, rows) in counts.items()}
    counted = {name: groups.sums(marks & rows) for name, (marks, rows) in counts.items()}

    def values(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(weights @ counted[name], weights @ among[name]) for name in counts}

    return values


def _table(
    tests: Sequence[DomainTest],
    found: Mapping[str, Mapping[str, Metric]],
    heads: Mapping[str, str],
    title: str,
    caption: str,
) -> Table:
    table = new_number_table(title, "domain", heads.values())  # a minimum width would not fit 80 characters
    for test in tests:
        table.add_row(test.row_title, *(format_percent(found[test.name].get(key)) for key in heads))
    table.caption = Text(caption)
    return table


def _check_guarantee(tests: Sequence[DomainTest], found: Mapping[str, Mapping[str, Metric]]) -> list[str]:
    """Names the domains where conformal sets contain a class clearly less often than guaranteed."""
    by_title = {
        test.title: [m for label in LABELS if (m := found[test.name].get(f"conformal_{label}")) is not None]
        for test in tests
    }
    known = {title: metrics for title, metrics in by_title.items() if metrics}
    if not known:
        return ["conformal sets: no domain has enough rows of others to calibrate on"]
    low = [
        title for title, metrics in known.items() if any(m.high is not None and m.high < CONFIDENCE for m in metrics)
    ]
    where = f" ({', '.join(map(escape_terminal, low))})" if low else ""
    return [f"conformal sets at 90% contain a class clearly less often on {len(low)} of {len(known)} domains{where}"]
