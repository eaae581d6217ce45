import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.results import full_names, read_results, write_results

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
METRICS = st.builds(Metric, value=NUMBER, low=NUMBER, high=NUMBER, n=st.integers(0, 10**9))


@settings(max_examples=40, deadline=None)
@given(metrics=st.dictionaries(st.text(min_size=1), METRICS, max_size=4), note=st.text())
def test_results_come_back_as_they_were_written(metrics, note, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_results(folder / "metrics.json", full_names("test", "begin", metrics), {"notes": [note]})
    found = read_results(folder)  # a run folder will do
    assert found.of("test", "begin") == metrics
    assert found.of("test", "beg") == {}
    assert found.meta == {"notes": [note]}


def test_the_file_is_what_outside_programs_were_promised(tmp_path):
    metric = Metric(value=0.71, low=0.69, high=0.73, n=1864)
    write_results(tmp_path / "metrics.json", full_names("test", "begin", {"macro_f1": metric}), {"seed": 0})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {
        "metrics": {"test/begin/macro_f1": {"value": 0.71, "low": 0.69, "high": 0.73, "n": 1864}},
        "meta": {"seed": 0},
    }


def test_a_metric_without_an_interval_says_only_what_it_has(tmp_path):
    write_results(tmp_path / "m.json", {"train/begin/loss": Metric(value=0.5)}, {})
    assert json.loads((tmp_path / "m.json").read_text())["metrics"] == {"train/begin/loss": {"value": 0.5}}
    assert read_results(tmp_path / "m.json").metrics["train/begin/loss"] == Metric(value=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"metrics": 3}',
        '{"metrics": {}, "meta": 3}',
        '{"metrics": {"a/b/c": 3}}',
        '{"metrics": {"a/b/c": {"low": 0.1}}}',
        '{"metrics": {"a/b/c": {"value": NaN}}}',
        '{"metrics": {"a/b/c": {"value": "0.5"}}}',
    ],
)
def test_what_is_no_results_file_is_told(text, tmp_path):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(UserError, match=r"metrics\.json"):
        read_results(tmp_path)


def test_a_run_without_results_is_told(tmp_path):
    with pytest.raises(UserError, match="no results here"):
        read_results(tmp_path)
