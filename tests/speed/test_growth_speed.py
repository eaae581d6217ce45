"""The fit of how time grows."""

import numpy as np
import pytest

from speed.growth_speed import fit_exponent


@pytest.mark.parametrize(("exponent", "scale"), [(-0.5, 100.0), (1.0, 0.1), (1.2, 0.1)])
def test_the_exponent_is_that_of_what_grows_beyond_the_start(exponent: float, scale: float) -> None:
    sizes = np.repeat(10.0 ** np.arange(1, 6), 3)
    values = (6 + scale * sizes**exponent) * np.random.default_rng(0).normal(1, 0.02, len(sizes))
    found, low, high = (float(number.strip("[],")) for number in fit_exponent(sizes, values, 6.0).split())
    assert found == pytest.approx(exponent, abs=0.05)
    assert low < found < high < low + 0.2
