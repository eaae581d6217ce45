"""Figures that people judge: the forms are written, and an export with their answers gives the figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from faithkit_papers import reproduce
from faithkit_papers.annotation.schemes import SCHEMES
from faithkit_papers.reproduction.reproduction_report import write_table
from faithkit_papers.reproduction.table_steps import PAPER, Place
from tests.faithkit_papers.annotation.annotated import exported
from tests.faithkit_papers.reproduction.test_tables import all_tables
from tests.running import compose


def cells(out: Path, table: str) -> dict[str, Any]:
    found = json.loads((out / "tables" / f"{table}.json").read_text(encoding="utf-8"))["cells"]
    return {f"{cell['row']} {cell['column']}": cell for cell in found}


def answered(scheme: str, answers: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Writes choices as Label Studio's results."""
    assert set(answers) <= {question.name for question in SCHEMES[scheme].questions}
    return [
        {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": labels}}
        for name, labels in answers.items()
    ]


def test_the_forms_are_written_and_peoples_answers_give_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "out", "faithdial_fallback"
    reproduce.main(compose("reproduce", f"table={table}", f"out={out}"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "judged by people: annotate" in printed and f"human_evaluation/{table}.json" in printed
    tasks = json.loads((out / "steps" / f"{table}_forms" / "project" / "tasks.json").read_text(encoding="utf-8"))
    assert len(tasks) == 6

    def answer(place: int) -> list[dict[str, Any]]:
        if place >= 4:
            return answered("fallback", {"fallback": ["No"]})
        return answered("fallback", {"fallback": ["Yes"], "trigger": ["objective" if place else "opinion"]})

    given = [[(person, answer(place)) for person in (1, 2, 3)] for place in range(len(tasks))]
    (tmp_path / "human_evaluation").mkdir()
    exported(tasks, tmp_path / "human_evaluation" / f"{table}.json", given)
    reproduce.main(compose("reproduce", f"table={table}", f"out={out}", f"data_dir={tmp_path}"))
    found = cells(out, table)
    assert found["objective share, %"]["ours"]["value"] == pytest.approx(75)
    assert found["opinion share, %"]["ours"]["value"] == pytest.approx(25)
    assert found["objective share, %"]["paper"] == 50 and found["personal share, %"]["ours"]["value"] == 0
    assert found["personal share, %"]["ours"]["high"] == pytest.approx(100 * (1 - 0.025 ** (1 / 3)))  # 3 dialogues
    agreement = json.loads((out / "steps" / f"{table}_agreement" / "metrics.json").read_text(encoding="utf-8"))
    assert agreement["metrics"][f"test/{table}/fallback/fleiss_kappa"]["value"] == pytest.approx(1)


def test_stars_are_those_of_the_measured_difference(tmp_path: Path) -> None:
    table = all_tables(PAPER)["faithdial_7"]
    step = "faithdial_7_agreement"
    best, other = ("t5_infonce_faithdial", "t5_wow")
    metrics = {f"test/faithdial_7/cooperative/{system}/mean": {"value": 3.0, "n": 200} for system in (best, other)}
    rows = [
        {"column": "cooperative", "system": best},
        {"column": "cooperative", "system": other, "to_best": {"p_holm": 0.02, "stars": "*"}},
    ]
    folder = tmp_path / "steps" / step
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps({"metrics": metrics, "meta": {"compared": rows}}))
    made = write_table(table, Place(scale=PAPER, out=tmp_path), {})
    [first] = [line for line in made.text.splitlines() if "WoW: T5 " in line]
    assert r"3.00\*" in first and r"2.97\*" in first and "Wilcoxon" in made.text
    found = cells(tmp_path, "faithdial_7")
    assert found["WoW: T5 cooperative"]["stars"] == "*" == found["WoW: T5 cooperative"]["paper_stars"]
    assert found["FaithDial: T5-InfoNCE cooperative"]["stars"] == ""
