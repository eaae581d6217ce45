"""Student's t and the beta distribution are scipy's."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from faithkit.statistics.metric import beta_cdf, beta_quantile, student_cdf, student_quantile

PARAMETERS = st.floats(0.5, 1e6)
PROBABILITIES = st.floats(0.001, 0.999)


@given(probability=PROBABILITIES, a=PARAMETERS, b=PARAMETERS)
@example(probability=0.975, a=1.0, b=1.0)
@example(probability=0.025, a=0.5, b=1e6)
def test_the_beta_distribution(probability: float, a: float, b: float) -> None:
    quantile = float(special.betaincinv(a, b, probability))
    assert beta_quantile(probability, a, b) == pytest.approx(quantile, rel=1e-6, abs=1e-9)
    assert beta_cdf(quantile, a, b) == pytest.approx(float(special.betainc(a, b, quantile)), abs=1e-7)
    assert (beta_cdf(0.0, a, b), beta_cdf(1.0, a, b)) == (0, 1)


@given(freedom=st.floats(1, 1e7), t=st.floats(-40, 40))
@example(freedom=1.0, t=0.0)
def test_students_t(freedom: float, t: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(float(special.stdtrit(freedom, 0.975)), rel=1e-7)
    assert student_cdf(t, freedom) == pytest.approx(float(special.stdtr(freedom, t)), rel=1e-5, abs=1e-12)
