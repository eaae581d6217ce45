"""The command `faithkit reproduce`: errors, dry runs, and results."""

import json
from pathlib import Path

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit_workflows import reproduce
from tests.running import compose

SETTINGS = "faithkit_workflows.settings.reporting:ReproduceSettings"


def refusal(*arguments: str) -> str:
    line = CommandLine(CONFIGS, "reproduce", list(arguments), SETTINGS)
    with pytest.raises(UserError) as refused:
        list(line.check(line.compose()))
    return str(refused.value)


def test_an_unknown_table_is_an_error_with_a_suggestion() -> None:
    assert "did you mean ragtruth_2?" in refusal("table=ragtruth_22")
    assert "did you mean halludial_10?" in refusal("table=[ragtruth_2,haludial_10]")
    assert "faithdial_4" in refusal("table=5") and "faithdial_4" in refusal("table=[]")
    assert "table is not set" in refusal("seed=1")
    assert "no such folder" in refusal("table=ragtruth_2", "data_dir=/none/such")


def test_a_dry_run_prints_the_steps_and_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    reproduce.main(compose("reproduce", "table=[ragtruth_2,ragtruth_5]", "dry_run=true", f"out={out}"))
    printed = capsys.readouterr().out
    assert f"run_dir={out}/steps/ragtruth_detector" in printed and "ragtruth_scored: to do" in printed
    assert "faithkit construct pipeline=describe pipeline.dataset=ragtruth" in printed
    assert "2 tables, 6 steps, of which 6 can be run here" in printed and not out.exists()
    reproduce.main(compose("reproduce", "table=ragtruth_5", "scale=paper", "dry_run=true", f"out={out}"))
    printed = capsys.readouterr().out
    assert "ragtruth_detector: ragtruth is missing below data_dir" in printed and "of which 0 can be run" in printed


def test_a_table_is_printed_and_written_with_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "diahalu").symlink_to(written_layout("diahalu", {"test": 40}))
    report, out = tmp_path / "report.md", tmp_path / "out"
    paths = (f"data_dir={tmp_path}", f"out={out}", f"report={report}")
    reproduce.main(compose("reproduce", "table=diahalu_2", *paths))
    printed = capsys.readouterr().out
    assert "here are 40 dialogues, in the paper 748" in printed and "48.16" in printed
    cells = json.loads((out / "tables" / "diahalu_2.json").read_text("utf-8"))["cells"]
    rates = {cell["row"]: cell for cell in cells if cell["column"] == "rate, %"}
    assert rates["all"]["paper"] == 43.98 and rates["all"]["ours"]["low"] < rates["all"]["ours"]["value"]
    assert all(cell["verdict"] == "not comparable" for cell in cells if cell["column"] == "dialogues")
    text = report.read_text("utf-8")
    assert "diahalu_2: DiaHalu" in text.replace("\\", "") and "| describe_diahalu | " in text
