"""Intervals of response metrics stay where the metric itself can lie."""

import numpy as np
import pytest

from faithkit.metrics.responses.response_columns import MetricColumns
from faithkit.statistics.bootstrap import Groups


@pytest.mark.parametrize("name", ["critic_rate", "fallback", "fallback_unanswerable"])
def test_the_interval_of_counted_responses_lies_between_0_and_1(name: str) -> None:
    groups = Groups.of(f"{row // 2}" for row in range(16))
    rare = np.array([1.0, 1.0] + [0.0] * 14)
    metric = MetricColumns(groups, {name: rare, "density": rare}).scored(num_resamples=50).metrics
    assert 0 < metric[name].low < metric[name].value < metric[name].high < 1
    assert metric["density"].low < 0, "a mean without such bounds"
