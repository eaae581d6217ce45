"""The rows of several runs, joined independently of the order of the runs."""

from itertools import combinations, permutations

import pytest

from faithkit.provenance.predicted_rows import to_line
from faithkit.records import Prediction
from faithkit.runs.reading import find_runs
from faithkit_workflows.compare.test_sets import TestSet, read_test_sets
from tests.faithkit.runs.folders import EVALUATED, make_run
from tests.faithkit_workflows.compare.made_up_runs import examples, judged

PREDICTED = tuple(Prediction(id="x").to_dict())
TEXTS = ("knowledge", "history", "response")
ORIGIN = ("group", "source", "split", "facts")
# The fields in the lines of each run besides the prediction.
KEPT = {
    "bare": (),
    "gold": ("gold", "group"),
    "spans": ("gold_spans", "response"),
    "no_texts": ("gold", *ORIGIN),
    "no_gold": TEXTS,
    "full": ("gold", "gold_spans", *ORIGIN, *TEXTS),
}


@pytest.fixture
def runs(tmp_path):
    rows = examples(12)
    for seed, (name, kept) in enumerate(KEPT.items()):
        lines = [to_line(one, example) for one, example in zip(judged(rows, 0.8, seed), rows, strict=True)]
        lines = [{key: value for key, value in line.items() if key in (*PREDICTED, *kept)} for line in lines]
        # Two files have another name, and rows without a source.
        write(tmp_path / name, lines, stem="old" if name in ("bare", "no_gold") else "begin")
    return {run.name: run for run in find_runs(tmp_path / "*")}


def write(folder, lines, *, stem="begin"):
    make_run(folder, EVALUATED, {}, {stem: lines})
    (folder / "predictions" / f"{stem}.origin.json").write_text('{"rows": {"dataset": "begin"}}')


def describe(test_set: TestSet):
    judged_rows = {system.name: len(test_set.select_judged(system)) for system in test_set.systems}
    return test_set.examples, judged_rows, test_set.with_text, sorted(test_set.problems)


def test_runs_in_any_order_make_the_same_test_set(runs):
    assert len(runs) == len(KEPT)
    for count in (2, 3):
        for chosen in combinations(runs.values(), count):
            first, *others = ([describe(one) for one in read_test_sets(order)] for order in permutations(chosen))
            assert len(first) == 1 and all(other == first for other in others), [run.name for run in chosen]
            problems = first[0][-1]
            assert not any("other values" in problem or "left out" in problem for problem in problems), problems


@pytest.mark.parametrize(
    "order",
    [("no_texts", "no_gold"), ("no_gold", "no_texts", "full"), ("bare", "gold", "no_gold", "spans", "no_texts")],
)
def test_a_row_has_the_fields_of_all_files(runs, order):
    [test_set] = read_test_sets(runs[name] for name in order)
    rows = {example.id: example for example in examples(12, marked={"full", "spans"} & set(order) != set())}
    assert test_set.examples == rows and test_set.with_text == rows.keys() and not test_set.problems
    assert all(len(test_set.select_judged(system)) == 12 for system in test_set.systems)


def test_different_values_are_reported_and_the_first_are_kept(tmp_path):
    rows = examples(12)
    lines = [to_line(one, example) for one, example in zip(judged(rows, 0.8, 1), rows, strict=True)]
    write(tmp_path / "first", lines)
    changed = [line | {"group": "another", "facts": {"task": "qa", "topic": "rivers"}} for line in lines[:3]]
    changed += [lines[3], lines[4] | {"gold_spans": []}, lines[5] | {"knowledge": "Else."}]
    changed += [lines[6] | {"gold": "faithful"}, lines[7] | {"response": "Yes."}, *lines[8:]]
    write(tmp_path / "second", changed)
    [test_set] = read_test_sets(find_runs(tmp_path / "*"))
    left_out, kept, missing = test_set.problems
    assert left_out.startswith("second: 3 rows have another gold label or text")
    assert kept.startswith("second: 4 rows have other values of gold spans, group, task") and "earlier values" in kept
    assert missing == "second has 9 of the 12 rows"
    found = list(test_set.examples.values())
    assert [(row.group, row.spans, row.knowledge) for row in found] == [(r.group, r.spans, r.knowledge) for r in rows]
    assert test_set.examples["begin:0"].meta == {**rows[0].meta, "topic": "rivers"}
