"""The comparison of runs: joined rows, paired tests, slices, settings, and problems."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from faithkit.metrics.classification import evaluate_labels, join_outcomes
from faithkit.records import HALLUCINATED
from faithkit.runs.reading import find_runs, name_runs_uniquely
from faithkit.scores.board import mcnemar_test
from faithkit_workflows.compare.comparison import compare_runs
from faithkit_workflows.compare.test_sets import METRICS
from tests.faithkit_workflows.compare.made_up_runs import examples, judged, write_run

FEW = {"num_resamples": 50}


def report_of(folder, **options):
    return compare_runs(name_runs_uniquely(find_runs(folder / "*")), **FEW, **options)


@pytest.fixture
def two(tmp_path):
    rows = examples()
    for name, right, seed in (("good", 0.9, 1), ("bad", 0.6, 2)):
        write_run(tmp_path / name, rows, judged(rows, right, seed), seed=seed)
    return tmp_path


def test_a_pair_has_the_differences_of_the_paired_bootstrap(two):
    rows, report = examples(), report_of(two)
    [pair] = report.pairs
    assert (pair.first, pair.second, pair.num_rows, pair.num_groups) == ("good", "bad", 60, 20)
    assert report.settings.keys() == {"seed"} and sorted(report.settings["seed"]) == ["1", "2"], "what differs"
    predictions = [{one.id: one for one in judged(rows, right, seed)} for right, seed in ((0.9, 1), (0.6, 2))]
    first, second = (evaluate_labels(join_outcomes(rows, one)) for one in predictions)
    expected = first.subtract(second, **FEW)
    assert pair.differences["macro_f1"] == expected["macro_f1"]
    assert pair.differences["auroc"] == expected["auroc"]
    gold = [example.label == HALLUCINATED for example in rows]
    called = [[one[example.id].label == HALLUCINATED for example in rows] for one in predictions]
    by_sklearn = [f1_score(gold, one, average="macro") for one in called]
    assert pair.differences["macro_f1"].value == pytest.approx(by_sklearn[0] - by_sklearn[1])
    alone = np.array(called[0]) == gold, np.array(called[1]) == gold
    assert pair.mcnemar.first_alone == int((alone[0] & ~alone[1]).sum())


def test_mcnemar_is_the_exact_binomial_test():
    right = np.array([True] * 9 + [False] * 5), np.array([True] * 3 + [False] * 6 + [True] + [False] * 4)
    found = mcnemar_test(*right)
    assert (found.first_alone, found.second_alone) == (6, 1)
    assert found.p_value == pytest.approx(2 * (1 + 7) / 2**7)
    assert mcnemar_test(right[0], right[0]).p_value == 1.0


def test_all_pairs_of_a_metric_are_corrected_together(tmp_path):
    rows = examples()
    for seed in range(4):
        write_run(tmp_path / f"run{seed}", rows, judged(rows, 0.6 + seed / 10, seed))
    pairs = report_of(tmp_path).pairs
    assert len(pairs) == 6
    by_p = sorted(pairs, key=lambda pair: pair.differences["macro_f1"].p_value)
    least = by_p[0].differences["macro_f1"].p_value
    assert by_p[0].corrected["macro_f1"] == pytest.approx(min(1, 6 * least))
    values = [pair.corrected["macro_f1"] for pair in by_p]
    assert values == sorted(values) and all(pair.mcnemar.corrected >= pair.mcnemar.p_value for pair in pairs)


def test_spans_are_compared_where_a_run_marks_any(tmp_path):
    rows = examples()
    for name, right in (("good", 0.95), ("bad", 0.5)):
        write_run(tmp_path / name, rows, judged(rows, right, 3, spans=True))
    [pair] = report_of(tmp_path).pairs
    assert pair.differences["char_f1"].value > 0.1


def test_slices_have_the_metrics_of_their_rows(two):
    report = report_of(two)
    found = {(one.field, one.value): one for one in report.sets[0].slices}
    assert {"task", "model", "history", "knowledge"} <= {field for field, _ in found}
    rows = [example for example in examples() if example.meta["task"] == "qa"]
    predictions = {one.id: one for one in judged(examples(), 0.9, 1)}
    right = [predictions[example.id].label == example.label for example in rows]
    part = found["task", "qa"]
    assert part.num_rows == len(rows)
    assert part.metrics["good"]["accuracy"].value == pytest.approx(sum(right) / len(right))
    assert part.metrics["good"]["accuracy"].n == len(rows)
    assert [value for field, value in found if field == "history"] == ["0", "1", "2", "3 to 4"]
    assert set(METRICS) >= part.metrics["bad"].keys()


def test_damaged_runs_are_reported_and_the_others_compared(two):
    (two / "bad" / "metrics.json").write_text('{"metrics": {"test/be')
    file = two / "good" / "predictions" / "begin.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    (two / "good" / "csv" / "metrics.csv").write_text("")
    (two / "empty" / "checkpoints").mkdir(parents=True)
    report = report_of(two)
    problems = "\n".join(report.problems)
    for part in ("bad: metrics.json cannot be read", "good: begin.jsonl is cut short", "empty: "):
        assert part in problems, problems
    assert "good has 59 of the 60 rows" in problems
    assert [pair.num_rows for pair in report.pairs] == [59]


def test_predictions_are_compared_on_common_rows(tmp_path):
    rows = examples()
    write_run(tmp_path / "first", rows[:40], judged(rows[:40], 0.9, 1))
    write_run(tmp_path / "second", rows[20:], judged(rows[20:], 0.6, 2))
    write_run(tmp_path / "apart", examples(12, name="x"), judged(examples(12, name="x"), 0.6, 2))
    report = report_of(tmp_path)
    rows_of = {frozenset((pair.first, pair.second)): pair.num_rows for pair in report.pairs}
    assert rows_of == {frozenset(("first", "second")): 20}
    assert any("apart" in problem and "no labelled row in common" in problem for problem in report.problems)


@pytest.mark.parametrize(("second", "path"), [("halueval", {}), ("embedded-begin", {"path": "embedded"})])
def test_runs_on_different_test_sets_are_not_paired(second, path, tmp_path):
    for name, options in (("begin", {}), (second.removeprefix("embedded-"), {"benchmark": path})):
        rows, block = examples(name=name), {"benchmark": {"name": name, **options["benchmark"]}} if options else {}
        write_run(tmp_path / f"run-{name}-{bool(options)}", rows, judged(rows, 0.8, 1), name=name, **block)
    report = report_of(tmp_path)
    assert not report.pairs and {one.test_set.name for one in report.sets} == {"begin", second}
    assert set(report.metrics) == {"test/begin", f"test/{second}"}
