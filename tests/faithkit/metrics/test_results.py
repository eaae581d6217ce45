import json

from faithkit.metrics.results import full_names, write_results
from faithkit.statistics.metric import Metric


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
