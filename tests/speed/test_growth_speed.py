"""The fit of how time grows."""

import numpy as np
import pytest

from speed.growth_speed import fit_exponent


@pytest.mark.parametrize("exponent", [-0.5, 1.0, 1.2])
def test_the_exponent_is_that_of_what_grows_beyond_the_start(exponent: float) -> None:
    sizes = np.repeat(10.0 ** np.arange(1, 6), 3)
    values = (6 + 0.1 * sizes**exponent) * np.random.default_rng(0).normal(1, 0.001, len(sizes))
    numbers = [float(number.strip("[],")) for number in fit_exponent(sizes, values, 6.0).split()]
    assert numbers == pytest.approx([exponent] * 3, abs=0.1)
    assert numbers[1] < numbers[0] < numbers[2]
