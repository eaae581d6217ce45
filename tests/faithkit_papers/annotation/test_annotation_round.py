"""The whole round of human annotation: a project, its export, decisions, a benchmark that is read, and agreement."""

import json
from typing import Any

import pytest

from data_modules.build import read_block
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl, write_jsonl
from faithkit.statistics.metric import read_metrics
from faithkit_papers.annotation.project import CONFIG, TASKS
from faithkit_workflows import construct
from tests.faithkit_papers.annotation.annotated import TEXT, exported, suggested
from tests.running import commanded, compose

QUALITY = {"from_name": "quality", "to_name": "response", "type": "choices"}


def construct_here(*overrides):
    """`python construct.py ...` in this process."""
    given = construct.with_resumed_pipeline(overrides)
    with commanded(given):
        construct.main(compose("construct", *given))


def agree(annotated, run):
    given = (f"pipeline.annotations={annotated}", "pipeline.num_resamples=50", f"run_dir={run}")
    construct_here("pipeline=agreement", *given)


@pytest.fixture
def rows(tmp_path):
    """Six answers, each with one marked span behind emoji and a Windows line break."""
    start = TEXT.index("wall")
    spans = [{"start": start, "end": start + 4, "label": "subtle_conflict"}]
    answers = ({"context": f"K {i}", "answer": f"{TEXT} {i}", "id": f"r{i}", "spans": spans} for i in range(6))
    write_jsonl(tmp_path / "rows" / "test.jsonl", ({**row, "question": "Q?"} for row in answers))
    return tmp_path / "rows"


@pytest.fixture
def written(rows, tmp_path):
    run = tmp_path / "run"
    options = (f"pipeline.path={rows}", "pipeline.dataset=pairs", "pipeline.suggest=gold", f"run_dir={run}")
    construct_here("pipeline=annotate", *options)
    return run


def quality(label):
    return {**QUALITY, "id": "q", "value": {"choices": [label]}}


def export_of(run, path):
    """Three annotators, two of r2, none of r5: they differ on a span of r1 and on the quality of r2."""
    tasks = json.loads((run / "project" / TASKS).read_text())
    given = [[(who, [*suggested(task), quality("good")]) for who in (1, 2, 3)] for task in tasks]
    given[1][1] = (2, [quality("good")])
    given[2] = [(1, [*suggested(tasks[2]), quality("good")]), (2, [*suggested(tasks[2]), quality("truncated")])]
    given[5] = []
    return exported(tasks, path, given)


def test_the_whole_round(written, tmp_path, capsys):
    export = export_of(written, tmp_path / "export.json")
    construct_here(f"resume={written}", f"pipeline.export={export}")
    output = capsys.readouterr().out
    assert "rows with 3 annotators" in output and "task without annotation" in output
    [open_row] = read_jsonl(written / "to_decide.jsonl")
    assert open_row["decide"] == ["quality"] and open_row["id"] == "r2" and open_row["decision"] is None
    assert open_row["annotators"]["2"]["quality"] == ["truncated"] and open_row["text"] == f"{TEXT} 2"
    assert open_row["settled"].keys() == {"spans"}
    assert [row["id"] for row in read_jsonl(written / "disagreements.jsonl")] == ["r1", "r2"]
    benchmark = {"dataset": "ragtruth", "path": str(written / "benchmark")}
    read = {example.id: example for example in read_block(benchmark)}
    assert read.keys() == {"r0", "r1", "r3", "r4"}
    assert all(e.response[s.start : s.end] == "wall" for e in read.values() for s in e.spans) and read["r1"].spans

    open_row["decision"] = {"quality": ["good"]}
    write_jsonl(tmp_path / "decided.jsonl", [open_row])
    construct_here(f"resume={written}", f"pipeline.decisions={tmp_path / 'decided.jsonl'}")
    assert not list(read_jsonl(written / "to_decide.jsonl"))
    assert {example.id for example in read_block(benchmark)} == {"r0", "r1", "r2", "r3", "r4"}
    metrics = read_metrics(written / "metrics.json")
    assert metrics["test/ragtruth/agreed"]["value"] == pytest.approx(3 / 5)

    agreed = tmp_path / "agreed"
    capsys.readouterr()
    agree(written, agreed)
    output = capsys.readouterr().out
    assert "agreement on spans" in output and "agreement on labels" in output
    found = read_metrics(agreed / "metrics.json")
    # Of thirteen pairs eleven mark the same four characters, and two mark four against none.
    assert found["test/run/spans/char_f1"]["value"] == pytest.approx(2 * 11 * 4 / (2 * 11 * 4 + 2 * 4))
    assert found["test/run/spans/Subtle Conflict/char_f1"]["n"] == 5
    assert {"test/run/quality/cohen_kappa", "test/run/quality/alpha"} <= found.keys()


def test_a_project_that_people_annotate_is_not_written_again(written):
    before = (written / "project" / TASKS).stat().st_mtime_ns
    construct_here(f"resume={written}")
    assert (written / "project" / TASKS).stat().st_mtime_ns == before
    config = (written / "config.yaml").read_bytes()
    with pytest.raises(UserError, match=r"sample=2.*began with sample=null"):
        construct_here(f"resume={written}", "pipeline.sample=2")
    with pytest.raises(UserError, match="this folder is of pipeline=annotate"):
        construct_here("pipeline=agreement", f"resume={written}", f"pipeline.annotations={written}")
    assert (written / "config.yaml").read_bytes() == config
    construct_here(f"resume={written}")  # nothing of the refused settings is left


def test_a_project_that_was_cut_short_is_written_whole(written):
    (written / "project" / CONFIG).unlink()
    (written / "project" / TASKS).write_text("[{")
    construct_here(f"resume={written}")
    assert len(json.loads((written / "project" / TASKS).read_text())) == 6


def test_an_expert_among_the_annotators_has_the_last_word(written, tmp_path):
    export = export_of(written, tmp_path / "export.json")
    given = (f"resume={written}", f"pipeline.export={export}", "pipeline.adjudicate=expert")
    with pytest.raises(UserError, match="no annotator of that name"):
        construct_here(*given, "pipeline.expert=stranger")
    construct_here(*given, "pipeline.expert='2'")
    block = {"dataset": "ragtruth", "path": str(written / "benchmark"), "quality": "all"}
    read = {example.id: example for example in read_block(block)}
    assert not read["r1"].spans and read["r2"].meta["quality"] == "truncated"


def test_human_scores_of_systems_are_compared(rows, tmp_path, capsys):
    for name in ("good", "bad"):
        answers = [{"id": f"r{i}", "label": None, "text": f"{name} {i}"} for i in range(6)]
        write_jsonl(tmp_path / f"{name}.jsonl", answers)
    systems = f"{{good: {tmp_path / 'good.jsonl'}, bad: {tmp_path / 'bad.jsonl'}}}"
    run = tmp_path / "judged"
    options = ("pipeline.scheme=likert", f"pipeline.path={rows}", f"pipeline.systems={systems}", f"run_dir={run}")
    construct_here("pipeline=annotate", "pipeline.dataset=pairs", *options)
    tasks = json.loads((run / "project" / TASKS).read_text())
    assert [task["data"]["row"] for task in tasks[:2]] == ["r0@good", "r0@bad"]
    given = []
    for task in tasks:
        good = task["data"]["row"].endswith("@good")
        replies = {"interpretable": "Yes", "faithful": "Faithful" if good else "Hallucination"}
        results: list[dict[str, Any]] = [
            {"from_name": name, "type": "choices", "value": {"choices": [label]}} for name, label in replies.items()
        ]
        results.append({"from_name": "cooperative", "type": "rating", "value": {"rating": 4 if good else 2}})
        given.append([(1, results), (2, results)])
    construct_here(f"resume={run}", f"pipeline.export={exported(tasks, tmp_path / 'e.json', given)}")
    assert len(read_block({"dataset": "begin", "path": str(run / "benchmark")})) == 12
    agree(run, tmp_path / "agreed")
    assert "scores by system" in capsys.readouterr().out
    metrics = read_metrics(tmp_path / "agreed" / "metrics.json")
    assert metrics["test/judged/faithful=Hallucination/bad/mean"]["value"] == 1
    compared = json.loads((tmp_path / "agreed" / "metrics.json").read_text())["meta"]["compared"]
    [against] = [row["to_best"] for row in compared if row["column"] == "cooperative" and "to_best" in row]
    assert against["value"] == -2 and against["p_wilcoxon"] < 0.05
    behind = {row["system"] for row in compared if row["column"] == "faithful=Hallucination" and "to_best" in row}
    assert behind == {"bad"}, "the lowest share is the best"


def test_judgements_of_a_system_that_calls_rows_hallucinated_are_judged(tmp_path):
    rows = list(read_block({"dataset": "halludial", "path": "embedded", "split": "test", "num_rows": 6}))
    labels = ["hallucinated", "faithful", "hallucinated"] * 2
    pairs = enumerate(zip(rows, labels, strict=True))
    judged = [{"id": row.id, "label": label, "text": f"No. {place}"} for place, (row, label) in pairs]
    write_jsonl(tmp_path / "judge.jsonl", judged)
    options = ("pipeline.dataset=halludial", "pipeline.scheme=halludial", "limit=6", "pipeline.only=hallucinated")
    run = tmp_path / "run"
    system = f"pipeline.systems={{judge: {tmp_path / 'judge.jsonl'}}}"
    construct_here("pipeline=annotate", *options, system, f"run_dir={run}")
    tasks = [task["data"] for task in json.loads((run / "project" / TASKS).read_text())]
    assert [task["judgement"] for task in tasks] == ["No. 0", "No. 2", "No. 3", "No. 5"]
    assert [task["response"] for task in tasks] == [rows[place].response for place in (0, 2, 3, 5)]


def test_the_majority_is_compared_with_the_labels_of_the_text_that_people_read(tmp_path):
    run = tmp_path / "run"
    options = ("pipeline.dataset=faithdial", "pipeline.scheme=faithdial", "limit=6", f"run_dir={run}")
    construct_here("pipeline=annotate", *options, "pipeline.text=original", "pipeline.suggest=gold")
    tasks = json.loads((run / "project" / TASKS).read_text())
    rows = list(read_block({"dataset": "faithdial", "path": "embedded", "split": "test", "num_rows": 6}))
    assert [task["data"]["response"] for task in tasks] == [row.original or row.response for row in rows]

    def chosen(task):
        return {result["from_name"]: result["value"]["choices"] for result in suggested(task)}

    given = [[(who, suggested(task)) for who in (1, 2, 3)] for task in tasks]
    generic = {"id": "b", "from_name": "begin", "to_name": "response", "type": "choices"}
    changed = [generic | {"value": {"choices": ["Generic"]}}]
    given[0] = [(who, changed) for who in (1, 2, 3)]
    export = exported(tasks, tmp_path / "export.json", given)
    construct_here(f"resume={run}", f"pipeline.export={export}")
    gold = [set(chosen(task)["begin"]) for task in tasks]
    new = [{"Generic"}, *gold[1:]]
    shared = sum(len(first & second) for first, second in zip(gold, new, strict=True))
    found = read_metrics(run / "metrics.json")["test/faithdial/begin_f1"]
    assert found["value"] == pytest.approx(2 * shared / sum(map(len, [*gold, *new]))) and found["n"] == len(rows)
