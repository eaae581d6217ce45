"""`benchmark=meta_judging`: judgements judged by a second judge and by people, and how far they agree."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import read_benchmark
from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.files.jsonl import read_annotations
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from tests.data_modules.official_rows import write
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here, metrics_of


@pytest.fixture(scope="module")
def halludial() -> str:
    return written_layout("halludial", {"train": 8, "test": 48})


@pytest.fixture(scope="module")
def examples(halludial: str) -> list[Example]:
    block = {"name": "halludial", "path": halludial, "split": "test", "num_rows": None, "on_bad_row": "stop"}
    return read_benchmark({**block, "options": {}}).examples


@pytest.fixture
def judgements(examples: list[Example], tmp_path: Path) -> Path:
    """The data's own judgements, of which every third says the opposite."""
    rows = []
    for number, one in enumerate(examples):
        wrong = "No." if one.label == HALLUCINATED else 'Yes. "this" is wrong.'
        opposite = FAITHFUL if one.label == HALLUCINATED else HALLUCINATED
        rows.append({"id": one.id, "label": opposite if number % 3 == 0 else one.label})
        rows[-1]["text"] = wrong if number % 3 == 0 else one.target
    return write(tmp_path / "said.jsonl", rows)


def meta(halludial: str, judgements: Path, run: Path, *options: str) -> dict[str, Any]:
    where = [f"benchmark.path={halludial}", f"benchmark.judgements={judgements}", f"run_dir={run}"]
    evaluate_here("benchmark=meta_judging", *where, *options)
    return metrics_of(run, "test/meta_judging/")


def test_a_second_judge_and_people_agree_beyond_chance(halludial, examples, judgements, tmp_path) -> None:
    said = {row["id"]: row for row in map(json.loads, judgements.read_text().splitlines())}
    right = {one.id: said[one.id]["label"] == one.label for one in examples}
    people = [{"id": id_, "label": "accurate" if one else "inaccurate"} for id_, one in right.items()]
    first, second = write(tmp_path / "ann.jsonl", people), write(tmp_path / "bob.jsonl", people[:20])
    answer = lambda messages, seed, sample: "Inaccurate" if '"this" is wrong' in str(messages) else "Accurate"  # noqa: E731
    with ChatServer(answer=answer) as server:
        options = ["benchmark.only_hallucinated=false", f"benchmark.labels=['{first}','{second}']"]
        found = meta(halludial, judgements, tmp_path / "run", *options, *asking(server.url))
    assert found["kappa/ann/bob"]["value"] == 1 and found["kappa/ann/bob"]["n"] == 20
    assert 0 < found["kappa/ann/second_judge"]["value"] < 1, "it misses the judgements that say No"
    assert found["accurate_rate/ann"]["value"] == pytest.approx(sum(right.values()) / len(right))
    assert found["kappa/ann/verdict_against_label"]["value"] == 1
    three = [found[f"kappa/{pair}"]["value"] for pair in ("ann/bob", "ann/second_judge", "bob/second_judge")]
    assert found["mean_kappa"]["value"] == pytest.approx(sum(three) / 3)
    written = read_annotations(tmp_path / "run" / "predictions" / "meta_judging.jsonl")
    assert set(written) == set(right), "in the form of people's labels, so that it can be given as such"
    told = (tmp_path / "run" / "report.md").read_text()
    assert "Cohen's kappa" in told and "second judge: accurate" in told


def test_people_alone_need_no_model_and_judgements_that_say_faithful_are_left_out(
    halludial: str, examples: list[Example], judgements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = {row["id"] for row in map(json.loads, judgements.read_text().splitlines()) if row["label"] == HALLUCINATED}
    labels = write(tmp_path / "ann.jsonl", [{"id": one.id, "label": "accurate"} for one in examples])
    found = meta(halludial, judgements, tmp_path / "run", f"benchmark.labels=['{labels}']")
    assert found["accurate_rate/ann"]["value"] == 1 and found["accurate_rate/ann"]["n"] == len(called)
    assert "judgements have the verdict faithful" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "none such", "label": "accurate"}, "1 of 1 ids are not in the data"),
        ({"id": "1", "label": "acurate"}, "label is"),
        ({"label": "accurate"}, "id must be a text"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(halludial, judgements, tmp_path, row, message) -> None:
    labels = write(tmp_path / "ann.jsonl", [row])
    with pytest.raises(UserError, match=message):
        meta(halludial, judgements, tmp_path / "run", f"benchmark.labels=['{labels}']")
