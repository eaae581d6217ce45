"""construct.py pipeline=estimate: the rate of a system from verdicts and labels, in waves, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faithkit.errors import UserError
from faithkit_workflows import construct
from tests.data_modules.official_rows import write
from tests.faithkit.statistics.estimate_coverage import responses
from tests.faithkit_workflows.pipelines.serving import sheet
from tests.running import compose, metrics_of

NAMES = {1.0: "hallucinated", 0.0: "faithful"}


def estimate(folder: Path, predictions: Path, *more: str) -> dict[str, Any]:
    """The metrics of a run, by their short names."""
    given = (f"pipeline.predictions={predictions}", f"run_dir={folder}", "pipeline.num_resamples=50", *more)
    construct.main(compose("construct", "pipeline=estimate", *given))
    return metrics_of(folder, f"test/{predictions.stem}/")


@pytest.fixture(scope="module")
def truth() -> tuple[np.ndarray, np.ndarray]:
    labels, scores, _ = responses(np.random.default_rng(3), 0.3, "over-eager")
    return labels[:800], scores[:800]


@pytest.fixture
def predictions(tmp_path: Path, truth: tuple[np.ndarray, np.ndarray]) -> Path:
    """A predictions file of 800 responses by two models, as evaluate.py writes one."""
    rows = []
    for row, score in enumerate(truth[1]):
        one = {"id": f"r{row}", "label": NAMES[float(score > 0.5)], "score": float(score), "spans": []}
        more = {"text": "", "group": f"d{row // 4}", "model": "ab"[row // 4 % 2], "response": f"It is so, {row}."}
        rows.append(one | more)
    return write(tmp_path / "verdicts.jsonl", rows)


def fill(path: Path, truth: tuple[np.ndarray, np.ndarray]) -> int:
    """Labels what is empty in a label_next.csv, as people would; gives how many that was."""
    rows = sheet(path)
    empty = [row for row in rows if not row["label"]]
    for row in empty:
        row["label"] = NAMES[truth[0][int(row["id"][1:])]]
    write(path, rows)
    return len(empty)


def test_waves_of_labels_bring_the_rate_to_the_truth(tmp_path, predictions, truth, capsys) -> None:
    found = estimate(tmp_path / "first", predictions, "pipeline.label_next=80")
    assert f"construct pipeline=estimate pipeline.predictions={predictions} pipeline.labels=" in capsys.readouterr().out
    assert set(found) == {"rate_detector"} and found["rate_detector"]["low"] > truth[0].mean() + 0.1
    labels = tmp_path / "first" / "label_next.csv"
    assert fill(labels, truth) == 80
    assert sheet(labels)[0]["response"].startswith("It is so")

    options = ("pipeline.by=model", "pipeline.width=0.1", "pipeline.label_next=120")
    found = estimate(tmp_path / "second", predictions, f"pipeline.labels={labels}", *options)
    shown = capsys.readouterr().out
    assert "weight of the detector" in shown and "120 responses to label next" in shown
    assert found["by/a/rate"]["n"] + found["by/b/rate"]["n"] == found["rate"]["n"] == 800
    assert found["labels_needed"]["value"] > 80
    first, labels = found["rate"], tmp_path / "second" / "label_next.csv"
    assert len(sheet(labels)) == 200 and fill(labels, truth) == 120

    last = estimate(tmp_path / "third", predictions, f"pipeline.labels={labels}")["rate"]
    for rate in (first, last):
        assert rate["low"] <= truth[0].mean() <= rate["high"]
    assert last["high"] - last["low"] < first["high"] - first["low"]


def test_labels_count_by_their_recorded_probability_whatever_detector_is_corrected(tmp_path, predictions, truth):
    estimate(tmp_path / "first", predictions, "pipeline.label_next=80")
    labels = tmp_path / "first" / "label_next.csv"
    fill(labels, truth)
    rows = [json.loads(line) for line in predictions.read_text().splitlines()]
    for row in rows:
        row["score"] = row["score"] ** 3
    other = write(tmp_path / "other" / "verdicts.jsonl", rows)
    original = estimate(tmp_path / "original", predictions, f"pipeline.labels={labels}", "pipeline.power=0")["rate"]
    found = estimate(tmp_path / "found", other, f"pipeline.labels={labels}", "pipeline.power=0")["rate"]
    assert (found["value"], found["low"], found["high"]) == (original["value"], original["low"], original["high"])
    with pytest.raises(UserError, match=r"drawn by other scores.*\n  hint: .*pipeline.label_next=null"):
        estimate(tmp_path / "more", other, f"pipeline.labels={labels}", "pipeline.label_next=5")

    drawn = sheet(labels)
    for lacking in ({"waves": "", "inclusion_probability": ""}, {"waves": ""}, {"inclusion_probability": ""}):
        by_hand = {**drawn[0], "id": next(f"r{row}" for row in range(800) if f"r{row}" not in {d["id"] for d in drawn})}
        mixed = write(tmp_path / "mixed.csv", [*drawn, {**by_hand, **lacking}])
        with pytest.raises(UserError, match=rf"the label of '{by_hand['id']}' has no .*\n  hint: take out rows"):
            estimate(tmp_path / "mixed", predictions, f"pipeline.labels={mixed}")


def test_a_wave_is_finished_before_the_next_is_drawn(tmp_path, predictions, truth) -> None:
    def part(wave: str, count: int) -> str:
        """The labels of a wave, some of its new rows left empty."""
        rows = sheet(tmp_path / wave / "label_next.csv")
        for row in [row for row in rows if not row["label"]][count:]:
            row["label"] = NAMES[truth[0][int(row["id"][1:])]]
        return f"pipeline.labels={write(tmp_path / wave / 'part.csv', rows)}"

    estimate(tmp_path / "first", predictions, "pipeline.label_next=80")
    some = part("first", 20)
    found = estimate(tmp_path / "some", predictions, some)["rate"]
    assert found["low"] <= truth[0].mean() <= found["high"]
    assert "labelled in part: the rate is right if chance chose" in (tmp_path / "some" / "construct.log").read_text()
    with pytest.raises(UserError, match=r"still empty: 20\n  at: .*part.csv.*2\n  hint: fill them first"):
        estimate(tmp_path / "next", predictions, some, "pipeline.label_next=10")
    with pytest.raises(UserError, match="still empty: 80"):
        empty = f"pipeline.labels={tmp_path / 'first' / 'label_next.csv'}"
        estimate(tmp_path / "next", predictions, empty, "pipeline.label_next=10")

    estimate(tmp_path / "second", predictions, part("first", 0), "pipeline.label_next=40")
    with pytest.raises(UserError, match=r"still empty: 5\n  at: .*\n  hint: fill them, or give the label_next.csv of"):
        estimate(tmp_path / "third", predictions, part("second", 5))
    part("second", 0)
    rows = sheet(tmp_path / "second" / "part.csv")
    halves = [{**row, "label": ""} if n % 2 == half else row for half in (0, 1) for n, row in enumerate(rows)]
    shared = write(tmp_path / "shared.csv", halves)
    whole = estimate(tmp_path / "whole", predictions, f"pipeline.labels={tmp_path / 'second' / 'part.csv'}")
    assert estimate(tmp_path / "shared", predictions, f"pipeline.labels={shared}") == whole


def test_the_dataset_gives_groups_parts_and_texts(tmp_path: Path) -> None:
    from data_modules.build import read_block

    examples = read_block({"dataset": "diahalu", "path": "embedded"})
    verdicts = [{"id": e.id, "label": e.label, "score": None} for e in examples]
    path = write(tmp_path / "verdicts.jsonl", verdicts)
    labels = write(tmp_path / "labels.csv", [{"id": e.id, "label": e.label} for e in examples[::9]])
    dataset = ("pipeline.dataset=diahalu", "pipeline.path=embedded", "pipeline.by=domain")
    given = (f"pipeline.labels={labels}", *dataset, "pipeline.label_next=3")
    found = estimate(tmp_path / "run", path, *given)
    assert found["by/reasoning/rate"]["n"] == sum(e.meta["domain"] == "reasoning" for e in examples)
    chosen = sheet(tmp_path / "run" / "label_next.csv")[0]
    assert chosen["response"] == next(e.response for e in examples if e.id == chosen["id"])
    path.write_text(json.dumps({"id": "another", "label": 1}) + "\n")
    with pytest.raises(UserError, match="the dataset has no response 'another'"):
        estimate(tmp_path / "other", path, *given)


def test_labels_of_others_empty_ones_and_repeated_ones_are_counted(tmp_path, predictions, truth) -> None:
    more = [{"id": "x", "label": 1}, {"id": "r1", "label": ""}, {"id": "r0", "label": int(truth[0][0])}]
    given = [{"id": f"r{row}", "label": int(truth[0][row])} for row in range(0, 800, 13)]
    labels = write(tmp_path / "labels.csv", [*given, *more])
    found = estimate(tmp_path / "run", predictions, f"pipeline.labels={labels}")
    assert found["rate"]["low"] <= truth[0].mean() <= found["rate"]["high"]
    log = (tmp_path / "run" / "construct.log").read_text()
    assert "62 labels, taken as drawn at random" in log
    for line in ("of ids that have no verdict: 1", "still empty: 1", "given twice alike, counted once: 1"):
        assert line in log


ONE, TWO = ({"id": id_, "label": 1} for id_ in ("r1", "r2"))
LABELS = {
    "label 'contrary' of id 'r0'": [{"id": "r0", "label": "contrary"}],
    "'r1' is labelled twice, and differently\n  at: .*line 3": [{"id": "r1", "label": 0}, {"id": "r1", "label": 1}],
    "column 'id' is missing or empty\n  at: .*line 2": [{"id": "", "label": "1"}],
    "none of 2 labels is of these responses": [{"id": "a", "label": 1}, {"id": "b", "label": 0}],
    "there is no column 'label'": [{"id": "r1", "gold": 1}],
    "nothing is labelled yet": [{"id": "r1", "label": ""}],
    "has no inclusion_probability": [{**ONE, "inclusion_probability": 0.1}, {**TWO, "inclusion_probability": ""}],
    "column 'waves': ": [{**ONE, "waves": "by hand"}],
    "2 different draws": [{**ONE, "waves": "random 0.1"}, {**TWO, "waves": "random 0.2"}],
}
VERDICTS = {
    "id 'a' is given twice": [{"id": "a", "label": 1}, {"id": "a", "label": 0}],
    "there is no column 'label'": [{"id": "a", "verdict": 1}],
    "column 'label' has 'maybe'": [{"id": "a", "label": "maybe"}],
    "no verdict can be used": [{"id": "a", "label": "unparsed"}, {"id": "b", "label": ""}],
}


def test_labels_and_verdicts_that_cannot_be_used_are_refused(tmp_path: Path, predictions: Path) -> None:
    for place, (problem, rows) in enumerate([*LABELS.items(), *VERDICTS.items()]):
        path = write(tmp_path / f"rows{place}.csv", rows)
        given = (predictions, f"pipeline.labels={path}") if place < len(LABELS) else (path, "pipeline.label_next=1")
        with pytest.raises(UserError, match=problem):
            estimate(tmp_path / f"run{place}", *given)


def test_labels_of_one_class_give_an_exact_interval_and_no_correction(tmp_path: Path, predictions: Path) -> None:
    labels = write(tmp_path / "labels.csv", [{"id": f"r{4 * row}", "label": 0} for row in range(30)])
    found = estimate(tmp_path / "run", predictions, f"pipeline.labels={labels}")
    assert found["rate"]["value"] == found["rate"]["low"] == 0
    assert found["rate"]["high"] == pytest.approx(1 - 0.025 ** (1 / 30))
    assert "rate_corrected" not in found


def test_a_verdict_that_could_not_be_read_is_counted_and_its_response_stays(tmp_path: Path) -> None:
    rows = [{"id": f"r{row}", "label": ("hallucinated", "faithful", "unparsed")[row % 3]} for row in range(90)]
    path = write(tmp_path / "verdicts.csv", rows)
    labels = write(tmp_path / "labels.csv", [{"id": f"r{row}", "label": row % 2} for row in range(60)])
    found = estimate(tmp_path / "run", path, f"pipeline.labels={labels}")
    assert found["rate"]["n"] == 90 and found["rate_detector"]["n"] == 60
    assert "30 verdicts could not be read" in (tmp_path / "run" / "construct.log").read_text()
