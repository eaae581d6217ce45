"""Cohen's kappa is scikit-learn's, with an interval over groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from faithkit.metrics.judging import measure_agreement

LABEL = st.sampled_from(["accurate", "inaccurate", "unparsed"])


@given(rows=st.lists(st.tuples(LABEL, LABEL, st.sampled_from("abcd")), min_size=1, max_size=30))
def test_kappa_is_scikit_learns(rows):
    first, second, groups = zip(*rows, strict=True)
    found = measure_agreement(first, second, groups, num_resamples=20).metrics
    assert found["agreement"].value == pytest.approx(
        sum(a == b for a, b in zip(first, second, strict=True)) / len(rows)
    )
    if len({*first, *second}) == 1:
        assert "kappa" not in found, "both always say the same: chance explains it as well"
    else:
        assert found["kappa"].value == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
        assert -1 <= found["kappa"].low <= found["kappa"].value <= found["kappa"].high <= 1
