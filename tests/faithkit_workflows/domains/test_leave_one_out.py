"""Baselines that are fitted for a domain on other domains only."""

import numpy as np
import pytest

from faithkit.baselines.counted_features import WORD_EVIDENCE
from faithkit.records import HALLUCINATED, Example
from faithkit_workflows.domains.leave_one_out import (
    MIN_SLOPE,
    REGRESSION,
    SETTINGS,
    TREES,
    FitRows,
    LeaveOneOut,
    Platt,
    Recipe,
    Values,
    compute_auroc,
    list_recipes,
    row_weights,
)

COLUMNS = ("good", "noise")
REGRESSED = Recipe(key="r", name="r", kind=REGRESSION, columns=COLUMNS, settings=SETTINGS[REGRESSION])
GROWN = Recipe(key="t", name="t", kind=TREES, columns=COLUMNS, settings=SETTINGS[TREES])


def draw_rows(seed: int, *related: str, sign: float = 1.0, num: int = 80) -> FitRows:
    """Draws rows whose first feature predicts the label, with this sign."""
    generator = np.random.default_rng(seed)
    gold = generator.random(num) < 0.5
    good = sign * (gold + generator.normal(0, 0.4, num))
    return FitRows(np.stack([good, generator.normal(0, 1, num)], axis=1), gold, frozenset(related))


DOMAINS = {
    "a": draw_rows(1, "a"),
    "b": draw_rows(2, "b", "c"),
    "c": draw_rows(3, "b", "c"),
    "d": draw_rows(4, "d"),
}


def predict(fits: LeaveOneOut, recipe: Recipe, left_out: str, features: Values) -> Values:
    fitted = fits.fit(recipe, left_out)
    assert fitted is not None
    examples = [
        Example(id=str(i), source="s", split="t", group="g", knowledge="", response="") for i in range(len(features))
    ]
    predictions = fitted.predict(examples, features).predictions.values()
    assert all((one.label == HALLUCINATED) == (one.score >= fitted.threshold) for one in predictions)
    return np.array([one.score for one in predictions])


@pytest.mark.parametrize("recipe", [REGRESSED, GROWN])
def test_a_baseline_does_not_depend_on_its_domain_or_related_ones(recipe: Recipe) -> None:
    features = draw_rows(9).features
    changed = DOMAINS | {"b": draw_rows(7, "b", "c", sign=-5), "c": draw_rows(8, "b", "c", sign=-5)}
    before, after = (predict(LeaveOneOut(rows, COLUMNS), recipe, "b", features) for rows in (DOMAINS, changed))
    assert np.array_equal(before, after)
    assert not np.array_equal(predict(LeaveOneOut(changed, COLUMNS), recipe, "a", features), before)


def test_a_baseline_orders_a_domain_that_it_was_not_trained_on() -> None:
    fits = LeaveOneOut(DOMAINS, COLUMNS)
    fitted, held = fits.fit(REGRESSED, "b"), DOMAINS["b"]
    assert fitted is not None and fitted.trained_on == ("a", "d") and fitted.num_rows == 160
    assert fitted.inner_auroc > 0.9
    scores = predict(fits, REGRESSED, "b", held.features)
    assert scores[held.gold].mean() > scores[~held.gold].mean() + 0.3


def test_a_threshold_calls_both_classes_where_the_largest_domain_is_nearly_all_hallucinated() -> None:
    random = np.random.default_rng(0)

    def rows(name: str, size: int, share: float) -> FitRows:
        gold = np.arange(size) < share * size
        features = np.column_stack([gold + random.normal(0, 0.5, size), random.normal(0, 1, size)])
        return FitRows(features, gold, frozenset({name}))

    every = {"a": rows("a", 2000, 0.95), "b": rows("b", 100, 0.5), "c": rows("c", 100, 0.5), "d": rows("d", 200, 0.5)}
    fits = LeaveOneOut(every, COLUMNS)
    fitted, held = fits.fit(REGRESSED, "d"), every["d"]
    assert fitted is not None
    called = predict(fits, REGRESSED, "d", held.features) >= fitted.threshold
    assert called[held.gold].mean() > 0.7 and (~called[~held.gold]).mean() > 0.7


def test_one_other_domain_leaves_no_choice_and_none_gives_no_baseline() -> None:
    alone = LeaveOneOut({"a": DOMAINS["a"], "d": DOMAINS["d"]}, COLUMNS).fit(REGRESSED, "a")
    assert alone is not None and alone.trained_on == ("d",) and np.isnan(alone.inner_auroc)
    assert "inner_auroc" not in alone.to_dict()
    assert LeaveOneOut({"a": DOMAINS["a"]}, COLUMNS).fit(REGRESSED, "a") is None
    one_class = FitRows(np.zeros((5, 2)), np.ones(5, bool), frozenset({"e"}))
    assert LeaveOneOut(DOMAINS | {"e": one_class}, COLUMNS).domains_without("a") == ("b", "c", "d")


def pool_domains(*parts: tuple[float, float, float, int]) -> tuple[Values, Values, Values, Values]:
    """Draws scores, labels, weights and domain numbers.

    Args:
        parts: For each domain its share of hallucinated rows, its mean log-odds, by how much those of hallucinated
            rows are higher, and its rows.
    """
    generator = np.random.default_rng(0)
    scores, golds = [], []
    for share, level, gap, num in parts:
        gold = np.arange(num) < share * num
        odds = level + gap * (gold - share) + generator.normal(0, 1, num)
        scores.append(1 / (1 + np.exp(-odds)))
        golds.append(gold)
    weights = np.concatenate([row_weights(gold, balanced=False) for gold in golds])
    numbers = np.repeat(np.arange(len(parts)), [len(gold) for gold in golds])
    return np.concatenate(scores), np.concatenate(golds), weights, numbers


def test_scores_in_the_wrong_order_keep_it_and_get_the_right_mean() -> None:
    scores, gold, weights, numbers = pool_domains((0.5, 3.0, -2.0, 200), (0.5, 3.0, -2.0, 50))
    platt = Platt.fit(scores, gold, weights, numbers)
    assert platt.slope == MIN_SLOPE
    assert np.average(platt(scores), weights=weights) == pytest.approx(0.5, abs=1e-9)
    assert compute_auroc(platt(scores), gold) == compute_auroc(scores, gold) < 0.2


def test_domains_with_different_shares_of_hallucinated_rows_do_not_flatten_the_slope() -> None:
    parts = (0.9, -3.0, 2.0, 400), (0.2, 3.0, 2.0, 100)  # more is hallucinated where scores are low on average
    scores, gold, weights, numbers = pool_domains(*parts)
    platt = Platt.fit(scores, gold, weights, numbers)
    # Within a domain log-odds are normal, apart by 2, with a spread of 1: the slope of their log-likelihood ratio is 2.
    assert platt.slope == pytest.approx(2, abs=0.5)
    assert np.average(platt(scores), weights=weights) == pytest.approx(0.55, abs=1e-9), "domains weigh the same"
    assert compute_auroc(platt(scores), gold) == compute_auroc(scores, gold)


@pytest.mark.parametrize("level", [-20.0, 0.0, 20.0])
def test_extreme_and_constant_scores_are_calibrated(level: float) -> None:
    gold = np.array([True, False, False, False] * 5)
    scores = np.full(20, 1 / (1 + np.exp(-level)))
    platt = Platt.fit(scores, gold, row_weights(gold, balanced=False), np.zeros(20, np.intp))
    assert platt(scores) == pytest.approx(np.full(20, 0.25))


def test_recipes_use_the_features_of_models_where_there_are_any() -> None:
    simple = {one.key for one in list_recipes(["response words", *WORD_EVIDENCE])}
    both = {one.key: one for one in list_recipes([*WORD_EVIDENCE, "cosine", "not entailed"])}
    assert simple == {"overlap", "grams", "mismatch", "length", "word_regression", "word_trees", "counted"}
    assert both.keys() - simple == {"cosine", "nli", "regression", "trees"}
    assert both["trees"].columns == (*WORD_EVIDENCE, "cosine", "not entailed")
