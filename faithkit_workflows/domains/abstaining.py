"""How a detector does on a domain where it may say "cannot tell": accuracy against coverage, and conformal sets.

A conformal set (Vovk et al. 2005; the library crepes) holds every label that cannot be refused at the wanted
confidence: one label is a verdict, both are "cannot tell". Each class is calibrated by itself, on the rows of the
domains that share nothing with the tested one. What it promises holds only if the tested domain is like these, and
the table tells whether it does.
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
from faithkit.pages.tables import escape_terminal, format_percent, new_number_table
from faithkit.records import LABELS
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.spread import Statistic, Values
from faithkit_workflows.domains.tested import DomainTest

COVERAGES = (100, 80, 50)  # percent of the rows that are judged, the surest first
SURE = 0.9  # of `abstain_at`, and the confidence of conformal sets
FEWEST = 20  # rows of each class that conformal sets are calibrated on
Marks = NDArray[np.bool_]
JUDGED = {f"accuracy_at_{coverage}": f"{coverage}%" for coverage in COVERAGES} | {
    "judged_at_90": "judged at 0.9",
    "accuracy_judged_at_90": "right of these",
}
SETS = {f"conformal_{label}": f"hold {label}" for label in LABELS} | {
    "conformal_single": "one label",
    "conformal_single_accuracy": "right of these",
}


def abstaining(
    tests: Sequence[DomainTest], *, title: str, num_resamples: int = 1000
) -> tuple[dict[str, Metric], list[Table], list[str]]:
    """Measures every domain whose rows all have a probability; gives metrics, tables and notes.

    Metrics are named `wow/accuracy_at_50`, `wow/conformal_faithful` and so on.
    """
    joined = {test.name: join_outcomes(test.examples, test.predictions) for test in tests}
    outcomes = {name: own for name, own in joined.items() if own.scored.all()}
    found: dict[str, Mapping[str, Metric]] = {}
    for number, test in enumerate(tests):
        if (own := outcomes.get(test.name)) is not None:
            others = [other for other in tests if other.name in outcomes and _calibrates(other, test)]
            counts = _judged(own) | _conformal(own, *_scores_of(others, outcomes))
            statistic = _shares(own.groups, counts)
            scored = bootstrap(own.groups, statistic, kinds=PROPORTION, num_resamples=num_resamples, seed=number)
            found[test.name] = scored.metrics
    if not found:
        return {}, [], []
    metrics = {f"{test}/{name}": metric for test, own in found.items() for name, metric in own.items()}
    shown = [test for test in tests if test.name in found]
    return metrics, _tables(shown, found, title), _verdict(shown, found)


def _judged(own: Outcomes) -> dict[str, tuple[Marks, Marks]]:
    """Marks the rows that are right, and those that are judged, by how many or how sure."""
    right = own.called == own.gold
    confidence = np.where(own.called == 1, own.scores, 1 - own.scores)
    surest = np.sort(confidence)[::-1]
    judged = {
        f"accuracy_at_{coverage}": confidence >= surest[ceil(coverage / 100 * len(surest)) - 1]
        for coverage in COVERAGES
    }
    sure = confidence >= SURE
    counts = {name: (right, rows) for name, rows in judged.items()}
    return counts | {"judged_at_90": (sure, np.ones_like(sure)), "accuracy_judged_at_90": (right, sure)}


def _calibrates(other: DomainTest, test: DomainTest) -> bool:
    """Tells whether a domain's rows may calibrate the sets of another: they share nothing, and it is no twin."""
    return other.name != test.name and not other.beside and other.name not in test.kin and test.name not in other.kin


def _scores_of(tests: Sequence[DomainTest], outcomes: Mapping[str, Outcomes]) -> tuple[Values, NDArray[np.int8]]:
    """Gives probabilities and labels of the rows of some domains, less those that the model has seen."""
    scores, gold = [np.zeros(0)], [np.zeros(0, np.int8)]
    for test in tests:
        own = outcomes[test.name]
        new = np.ones(len(own.gold), bool) if test.seen is None else ~test.seen
        scores.append(own.scores[new])
        gold.append(own.gold[new])
    return np.concatenate(scores), np.concatenate(gold)


def _conformal(own: Outcomes, scores: Values, gold: NDArray[np.int8]) -> dict[str, tuple[Marks, Marks]]:
    """Marks the rows whose set holds their label, and those with one label; nothing without enough to calibrate on."""
    if min(np.bincount(gold, minlength=2)) < FEWEST:
        return {}
    # A label is the stranger, the less probable it is.
    strange, of_tested = np.stack([scores, 1 - scores], axis=1), np.stack([own.scores, 1 - own.scores], axis=1)
    sets = np.concatenate(
        [
            ConformalClassifier()
            .fit(strange[gold == label, label])
            .predict_set(of_tested[:, [label]], confidence=SURE, smoothing=False)
            for label in range(2)
        ],
        axis=1,
    ).astype(bool)
    held, single = sets[np.arange(len(own.gold)), own.gold], sets.sum(axis=1) == 1
    by_class = {f"conformal_{name}": (held, own.gold == label) for label, name in enumerate(LABELS)}
    return by_class | {
        "conformal_single": (single, np.ones_like(single)),
        "conformal_single_accuracy": (held, single),
    }


def _shares(groups: Groups, counts: Mapping[str, tuple[Marks, Marks]]) -> Statistic:
    """Gives the share of rows that are marked among others, as a function of group weights."""
    among = {name: groups.sums(rows) for name, (_, rows) in counts.items()}
    marked = {name: groups.sums(marks & rows) for name, (marks, rows) in counts.items()}

    def values(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(weights @ marked[name], weights @ among[name]) for name in counts}

    return values


def _tables(tests: Sequence[DomainTest], found: Mapping[str, Mapping[str, Metric]], title: str) -> list[Table]:
    judged = "accuracy over the surest 100, 80, 50% (equally sure rows together), and over those of at least 0.9"
    sets = "each class is calibrated on the domains that share nothing; how often the sets hold a row's label"
    return [
        _table(tests, found, JUDGED, f"{title}: where it may say nothing, percent", judged),
        _table(tests, found, SETS, f"{title}: conformal sets at 90%, percent", sets),
    ]


def _table(
    tests: Sequence[DomainTest],
    found: Mapping[str, Mapping[str, Metric]],
    heads: Mapping[str, str],
    title: str,
    caption: str,
) -> Table:
    table = new_number_table(title, "domain", heads.values())  # a least width would push a column out of 80
    for test in tests:
        table.add_row(test.shown_name, *(format_percent(found[test.name].get(key)) for key in heads))
    table.caption = Text(caption)
    return table


def _verdict(tests: Sequence[DomainTest], found: Mapping[str, Mapping[str, Metric]]) -> list[str]:
    """Tells where conformal sets hold a class clearly less often than they promise."""
    bounds = {test.title: [found[test.name].get(f"conformal_{label}") for label in LABELS] for test in tests}
    known = {title: metrics for title, own in bounds.items() if (metrics := [one for one in own if one is not None])}
    if not known:
        return ["conformal sets: no domain has enough rows of others to calibrate on"]
    broken = [title for title, own in known.items() if any(one.high is not None and one.high < SURE for one in own)]
    where = f" ({', '.join(map(escape_terminal, broken))})" if broken else ""
    return [f"conformal sets at 90% hold a class clearly less often on {len(broken)} of {len(known)} domains{where}"]
