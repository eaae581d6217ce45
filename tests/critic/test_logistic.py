"""The weights of evidence give a row the same number in any batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.logistic import linear


@given(st.integers(1, 40), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_a_row_has_the_same_log_odds_in_any_batch(rows: int, features: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    evidence, weights = random.normal(size=(rows, features)), tuple(random.normal(size=features + 1))
    together = linear(evidence, weights)
    assert together.tolist() == [linear(evidence[row : row + 1], weights)[0] for row in range(rows)]
    assert together == pytest.approx(evidence @ weights[:-1] + weights[-1])
