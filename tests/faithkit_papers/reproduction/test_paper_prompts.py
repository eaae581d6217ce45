"""`faithkit reproduce prompts=DIR`: steps ask with the user's files, and every verdict names them."""

import json
from pathlib import Path

import pytest

import judge
from faithkit_papers.reproduction.paper_parts import NOT_COMPARABLE, WITHIN, Cell, Metric, Table
from faithkit_papers.reproduction.paper_tables import all_steps
from faithkit_papers.reproduction.reproduction_report import build_comparison_table, compare_table
from faithkit_papers.reproduction.table_steps import (
    FOLDERS,
    LOCAL,
    PAPER,
    Place,
    Step,
    needed_prompts,
    run_steps,
    step_arguments,
)
from tests.faithkit_papers.reproduction.test_running import refusal
from tests.faithkit_papers.reproduction.test_tables import all_tables

ASKED = Step(
    name="asked",
    script="evaluate",
    arguments=("benchmark=diahalu", "engine=auto", "engine.model=a", "judge.prompts=diahalu", "judge.examples=1"),
)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    for name in ("diahalu/verdict.txt", "ragtruth/spans.qa.txt", "halludial/reply.txt"):
        file = tmp_path / "prompts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Is it wrong? {response}" if "reply" not in name else "{dialogue}")
    return tmp_path / "prompts"


@pytest.mark.parametrize("scale", [LOCAL, PAPER])
def test_every_step_that_asks_a_language_model_has_prompts(scale: str) -> None:
    ours = {file.stem for file in (Path(judge.__file__).parent / "prompts").glob("*.txt")}
    steps = list(all_steps(list(all_tables(scale).values())))
    asking = [step for step in steps if any(one.startswith("engine.model=") for one in step.arguments)]
    for step in asking:
        folder, names = needed_prompts(step.arguments)
        assert folder in FOLDERS and set(names) <= ours, step.name
        assert names or "selfcheck.samples=others" in step.arguments, step.name
    found = {needed_prompts(step.arguments) for step in steps}
    assert {("halludial", ("reply",)), ("halludial", ("comparative",)), ("ragtruth", ("spans",))} <= found
    assert {("diahalu", ("steps",)), ("halueval", ("verdict",)), ("halludial", ("judgement",))} <= found


def test_a_step_asks_with_the_files_that_are_there(prompts: Path) -> None:
    given = Place(scale=PAPER, out=Path("out"), prompts=prompts)
    assert f"judge.prompts={prompts}/diahalu" in step_arguments(ASKED, given)
    assert "judge.prompts=diahalu" not in step_arguments(ASKED, given)
    assert "judge.examples=1" not in step_arguments(ASKED, given), "the example is in the text of the prompt"
    (prompts / "diahalu" / "verdict.examples.jsonl").write_text('{"response": "a", "reply": "Yes"}')
    assert "judge.examples=1" in step_arguments(ASKED, given)
    steps = all_tables(PAPER)
    rates = next(step for step in steps["halludial_6"].steps if "benchmark=hallucination_rates" in step.arguments)
    assert f"benchmark.prompts={prompts}/halludial" in step_arguments(rates, given)
    judged = next(step for step in steps["halludial_10"].steps)
    assert step_arguments(judged, given) == step_arguments(judged, Place(scale=PAPER, out=Path("out")))


def test_verdicts_name_the_prompt_and_compare_only_the_papers(tmp_path: Path, prompts: Path) -> None:
    folder = tmp_path / "out" / "steps" / "asked"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps({"metrics": {"test/diahalu/f1": {"value": 0.1}}, "meta": {}}))
    ours, chance = (Metric("asked", "test/diahalu/f1", of_baseline=one) for one in (False, True))
    cells = [Cell(row="r", column="c", published=10.0, digits=1, result=one) for one in (ours, chance)]
    table = Table(name="t", title="T", published="diahalu_counts", cells=tuple(cells), steps=(ASKED,))
    found = compare_table(table, Place(scale=PAPER, out=tmp_path / "out"), {})
    assert [one.verdict for one in found] == [NOT_COMPARABLE, WITHIN] and found[0].prompts == "our prompt"
    assert "our prompt in place of the paper's" in str(build_comparison_table(table, found, "").caption)
    found = compare_table(table, Place(scale=PAPER, out=tmp_path / "out", prompts=prompts), {})
    assert [one.verdict for one in found] == [WITHIN, WITHIN] and found[1].prompts == ""
    named = found[0].prompts
    assert named.startswith("diahalu/verdict.txt ") and len(named.split()[1]) == 12
    assert f"prompts: {named}" in str(build_comparison_table(table, found, "").caption)


def test_a_step_is_not_taken_over_after_its_prompt_has_changed(tmp_path: Path, prompts: Path) -> None:
    place = Place(scale=PAPER, out=tmp_path / "out", prompts=prompts)
    record = {"command": step_arguments(ASKED, place), "ended": "now", "prompts": "diahalu/verdict.txt 000000000000"}
    place.folder("asked").mkdir(parents=True)
    place.folder("asked").with_name("asked.json").write_text(json.dumps(record))
    with pytest.raises(Exception, match="step asked was run with other settings"):
        run_steps([ASKED], place)


def test_a_folder_that_cannot_be_used_is_refused_before_any_step(tmp_path: Path, prompts: Path) -> None:
    assert "here is no folder of a paper's prompts" in refusal("table=diahalu_3", f"prompts={prompts / 'diahalu'}")
    (prompts / "diahalu" / "verdict.txt").write_text("{respons}")
    assert "verdict.txt" in (told := refusal("table=diahalu_3", f"prompts={prompts}")) and "{respons}" in told
    (prompts / "dialhalu").mkdir()
    told = refusal("table=diahalu_3", f"prompts={prompts}")
    assert "no paper has prompts in dialhalu" in told and "did you mean diahalu" in told
