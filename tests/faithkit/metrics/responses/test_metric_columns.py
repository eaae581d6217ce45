"""Intervals of response metrics follow from their declaration."""

import numpy as np
import pytest

from faithkit.metrics.responses.response_columns import RESPONSE_KINDS, MetricColumns
from faithkit.statistics.bootstrap import Groups


@pytest.mark.parametrize("name", ["critic_rate", "fallback", "fallback_unanswerable"])
def test_the_interval_of_counted_responses_lies_between_0_and_1(name: str) -> None:
    groups = Groups.of(f"{row // 2}" for row in range(16))
    rare = np.array([1.0, 1.0] + [0.0] * 14)
    columns = MetricColumns(groups=groups, columns={name: rare, "rouge_l": rare}, kinds=RESPONSE_KINDS)
    metric = columns.scored(num_resamples=50).metrics
    assert 0 < metric[name].low < metric[name].value < metric[name].high < 1
    assert metric["rouge_l"].low == 0, "the interval of a mean is cut to its range"


def test_a_column_needs_a_declaration() -> None:
    with pytest.raises(ValueError, match="no kind is declared for asks_back"):
        MetricColumns(groups=Groups.of("ab"), columns={"asks_back": np.ones(2)}, kinds=RESPONSE_KINDS)
