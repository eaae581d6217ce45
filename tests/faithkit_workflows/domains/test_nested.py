"""Baselines that are fitted for a domain on other domains alone."""

import numpy as np
import pytest

from faithkit.baselines.counted_features import WORD_EVIDENCE
from faithkit.records import HALLUCINATED, Example
from faithkit_workflows.domains.nested import MIN_SLOPE, FitRows, Nested, Platt, area, weights_of
from faithkit_workflows.domains.recipes import REGRESSION, SETTINGS, TREES, Recipe, Values, recipes_of

COLUMNS = ("good", "noise")
REGRESSED = Recipe(key="r", name="r", kind=REGRESSION, columns=COLUMNS, settings=SETTINGS[REGRESSION])
GROWN = Recipe(key="t", name="t", kind=TREES, columns=COLUMNS, settings=SETTINGS[TREES])


def rows(seed: int, *kin: str, sign: float = 1.0, num: int = 80) -> FitRows:
    """Rows whose first feature tells the label, with this sign."""
    generator = np.random.default_rng(seed)
    gold = generator.random(num) < 0.5
    good = sign * (gold + generator.normal(0, 0.4, num))
    return FitRows(np.stack([good, generator.normal(0, 1, num)], axis=1), gold, frozenset(kin))


DOMAINS = {"a": rows(1, "a"), "b": rows(2, "b", "c"), "c": rows(3, "b", "c"), "d": rows(4, "d")}


def scores_of(nested: Nested, recipe: Recipe, left_out: str, features: Values) -> list[float | None]:
    fitted = nested.fit(recipe, left_out)
    assert fitted is not None
    examples = [
        Example(id=str(i), source="s", split="t", group="g", knowledge="", response="") for i in range(len(features))
    ]
    return [one.score for one in fitted.predictions(examples, features).values()]


@pytest.mark.parametrize("recipe", [REGRESSED, GROWN])
def test_neither_a_domain_nor_its_kin_moves_its_own_baseline(recipe: Recipe) -> None:
    features = rows(9).features
    turned = DOMAINS | {"b": rows(7, "b", "c", sign=-5), "c": rows(8, "b", "c", sign=-5)}
    before, after = (scores_of(Nested(every, COLUMNS), recipe, "b", features) for every in (DOMAINS, turned))
    assert before == after
    assert scores_of(Nested(turned, COLUMNS), recipe, "a", features) != before  # others do learn from them


def test_what_it_learnt_from_is_told_and_orders_a_domain_that_it_never_saw() -> None:
    nested = Nested(DOMAINS, COLUMNS)
    fitted = nested.fit(REGRESSED, "b")
    assert fitted is not None and fitted.trained_on == ("a", "d") and fitted.num_rows == 160
    assert fitted.inner_auroc > 0.9
    held = DOMAINS["b"]
    scores = np.array(scores_of(nested, REGRESSED, "b", held.features))
    assert scores[held.gold].mean() > scores[~held.gold].mean() + 0.3


def test_labels_follow_a_threshold_that_was_fitted_elsewhere() -> None:
    nested = Nested(DOMAINS, COLUMNS)
    fitted = nested.fit(REGRESSED, "a")
    assert fitted is not None
    example = Example(id="1", source="s", split="t", group="g", knowledge="", response="")
    [prediction] = fitted.predictions([example], np.array([[3.0, 0.0]])).values()
    assert prediction.label == HALLUCINATED and prediction.score is not None
    assert prediction.score >= fitted.threshold


def test_a_threshold_calls_both_classes_where_the_largest_domain_is_nearly_all_hallucinated() -> None:
    random = np.random.default_rng(0)

    def rows(name: str, size: int, share: float) -> FitRows:
        gold = np.arange(size) < share * size
        features = np.column_stack([gold + random.normal(0, 0.5, size), random.normal(0, 1, size)])
        return FitRows(features, gold, frozenset({name}))

    every = {"a": rows("a", 2000, 0.95), "b": rows("b", 100, 0.5), "c": rows("c", 100, 0.5), "d": rows("d", 200, 0.5)}
    nested = Nested(every, COLUMNS)
    fitted, held = nested.fit(REGRESSED, "d"), every["d"]
    assert fitted is not None
    called = np.array(scores_of(nested, REGRESSED, "d", held.features)) >= fitted.threshold
    assert called[held.gold].mean() > 0.7 and (~called[~held.gold]).mean() > 0.7


def test_with_one_other_domain_there_is_nothing_to_choose_by_and_with_none_there_is_no_baseline() -> None:
    alone = Nested({"a": DOMAINS["a"], "d": DOMAINS["d"]}, COLUMNS).fit(REGRESSED, "a")
    assert alone is not None and alone.trained_on == ("d",) and np.isnan(alone.inner_auroc)
    assert "inner_auroc" not in alone.to_dict()
    assert Nested({"a": DOMAINS["a"]}, COLUMNS).fit(REGRESSED, "a") is None


def test_rows_of_one_class_teach_nothing_and_are_left_out() -> None:
    one_class = FitRows(np.zeros((5, 2)), np.ones(5, bool), frozenset({"e"}))
    assert Nested(DOMAINS | {"e": one_class}, COLUMNS).domains_without("a") == ("b", "c", "d")


def test_domains_and_classes_weigh_the_same_however_many_rows_they_have() -> None:
    gold = np.array([True, False, False, False])
    assert weights_of(gold, balanced=False).sum() == pytest.approx(1)
    balanced = weights_of(gold, balanced=True)
    assert balanced[0] == pytest.approx(0.5) and balanced[1:].sum() == pytest.approx(0.5)


def pooled(*parts: tuple[float, float, float, int]) -> tuple[Values, Values, Values, Values]:
    """Scores, labels, weights and numbers of domains.

    Args:
        parts: The share hallucinated of each domain, what its log-odds are on the whole, by how much those of
            hallucinated rows are higher, and its rows.
    """
    generator = np.random.default_rng(0)
    scores, golds = [], []
    for share, level, gap, num in parts:
        gold = np.arange(num) < share * num
        odds = level + gap * (gold - share) + generator.normal(0, 1, num)
        scores.append(1 / (1 + np.exp(-odds)))
        golds.append(gold)
    weights = np.concatenate([weights_of(gold, balanced=False) for gold in golds])
    numbers = np.repeat(np.arange(len(parts)), [len(gold) for gold in golds])
    return np.concatenate(scores), np.concatenate(golds), weights, numbers


def test_a_score_of_the_wrong_order_gets_probabilities_whose_mean_is_the_share() -> None:
    scores, gold, weights, numbers = pooled((0.5, 3.0, -2.0, 200), (0.5, 3.0, -2.0, 50))
    platt = Platt.fit(scores, gold, weights, numbers)
    assert platt.slope == MIN_SLOPE
    assert np.average(platt(scores), weights=weights) == pytest.approx(0.5, abs=1e-9)
    assert area(platt(scores), gold) == area(scores, gold) < 0.2, "the order is kept"


def test_domains_with_other_shares_of_hallucinated_rows_do_not_flatten_the_slope() -> None:
    parts = (0.9, -3.0, 2.0, 400), (0.2, 3.0, 2.0, 100)  # more is hallucinated where scores are low on the whole
    scores, gold, weights, numbers = pooled(*parts)
    platt = Platt.fit(scores, gold, weights, numbers)
    # Within a domain log-odds are normal, apart by 2, with a spread of 1: the slope of their log-likelihood ratio is 2.
    assert platt.slope == pytest.approx(2, abs=0.5)
    assert np.average(platt(scores), weights=weights) == pytest.approx(0.55, abs=1e-9), "each domain counts the same"
    assert area(platt(scores), gold) == area(scores, gold)


@pytest.mark.parametrize("level", [-20.0, 0.0, 20.0])
def test_scores_at_their_ends_and_scores_that_are_all_alike_are_calibrated_too(level: float) -> None:
    gold = np.array([True, False, False, False] * 5)
    scores = np.full(20, 1 / (1 + np.exp(-level)))
    platt = Platt.fit(scores, gold, weights_of(gold, balanced=False), np.zeros(20, np.intp))
    assert platt(scores) == pytest.approx(np.full(20, 0.25))


def test_recipes_take_what_models_gave_where_they_gave_it() -> None:
    plain = {one.key for one in recipes_of(["response words", *WORD_EVIDENCE])}
    both = {one.key: one for one in recipes_of([*WORD_EVIDENCE, "cosine", "not entailed"])}
    assert plain == {"overlap", "grams", "mismatch", "length", "word_regression", "word_trees", "counted"}
    assert both.keys() - plain == {"cosine", "nli", "regression", "trees"}
    assert both["trees"].columns == (*WORD_EVIDENCE, "cosine", "not entailed")
