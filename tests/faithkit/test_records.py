import pytest

from faithkit.records import Prediction


@pytest.mark.parametrize("score", [True, False, "0.5", -0.1, 1.1, float("nan")])
def test_a_score_is_a_probability_and_no_label(score):
    with pytest.raises(ValueError, match=r"score must lie in 0\.\.1, got"):
        Prediction(id="a", score=score)


@pytest.mark.parametrize("score", [0, 1, 0.5, None])
def test_a_probability_or_none_is_taken(score):
    assert Prediction(id="a", score=score).score == score
