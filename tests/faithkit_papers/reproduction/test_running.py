"""Steps are run once, resumed after a kill, and compared with the paper's figures."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit_papers import reproduce
from faithkit_papers.reproduction import paper_parts as c
from faithkit_papers.reproduction import table_steps as steps
from faithkit_papers.reproduction.paper_tables import all_results
from faithkit_papers.reproduction.reproduction_report import NOT_RUN, build_comparison_table, compare_table, trace_cells
from faithkit_papers.reproduction.table_files import list_names
from faithkit_papers.reproduction.table_steps import LOCAL, PAPER, Place, Step
from tests.running import ROOT, compose, plain_config

SETTINGS = "faithkit_papers.reproduction.settings:ReproduceSettings"


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


def test_a_list_with_a_table_starts_no_work(tmp_path: Path) -> None:
    line = ["-m", "faithkit", "reproduce", "list", "table=ragtruth_6", "hosted=true", f"out={tmp_path / 'out'}"]
    done = subprocess.run([sys.executable, *line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "table=ragtruth_6" in done.stderr and not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_steps_and_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    reproduce.main(compose("reproduce", "table=[ragtruth_2,ragtruth_5]", "dry_run=true", f"out={out}"))
    printed = capsys.readouterr().out
    assert f"run_dir={out}/steps/ragtruth_detector" in printed and "ragtruth_scored: to do" in printed
    assert "faithkit construct pipeline=describe pipeline.dataset=ragtruth" in printed
    assert "2 tables and figures, 6 steps, of which 6 can be run here" in printed and not out.exists()
    reproduce.main(compose("reproduce", "table=ragtruth_5", "scale=paper", "dry_run=true", f"out={out}"))
    printed = capsys.readouterr().out
    assert "ragtruth_detector: ragtruth is missing below data_dir" in printed and "of which 0 can be run" in printed


def commands_of(printed: str) -> dict[str, str]:
    """The commands of a dry run, by step."""
    return {line.split("/steps/")[-1].split()[0]: line for line in printed.splitlines() if "run_dir=" in line}


def test_hardware_is_passed_on_and_too_few_gpus_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for corpus in ("ragtruth", "halludial", "diahalu"):
        (tmp_path / corpus).mkdir()
    tables = ("table=[ragtruth_5,halludial_2,diahalu_3]", "scale=paper", f"data_dir={tmp_path}", "dry_run=true")
    reproduce.main(compose("reproduce", *tables, "out=out"))
    commands = commands_of(capsys.readouterr().out)
    assert "trainer=fsdp" in commands["ragtruth_detector"], "not on one device"
    largest = "halludial_llama-2-70b-chat"
    assert commands[largest].endswith(f"run_dir=out/steps/{largest} engine.num_gpus=4")
    assert "num_gpus" not in commands["halludial_llama-2-7b-chat"]
    hardware = ("trainer=fsdp", "trainer.devices=2", "trainer.num_nodes=2", "engine.num_gpus=8")
    reproduce.main(compose("reproduce", *tables, *hardware, "out=out"))
    printed = capsys.readouterr().out
    commands = commands_of(printed)
    assert "trainer.devices=2 trainer.strategy=fsdp trainer.num_nodes=2" in commands["hallujudge_three_seeds"]
    assert "engine.num_gpus=8" in commands["diahalu_verdict_vicuna-33b"]
    assert "trainer" not in commands["ragtruth_scored"]
    if not torch.cuda.is_available():
        assert "needs 4 GPUs of 80 GB and gets 0 (0 here): engine.num_gpus=4" in printed
        assert "needs 4 GPUs of 80 GB and gets 0 (0 here): trainer=fsdp trainer.devices=4" in printed


@pytest.mark.parametrize("table", ["ragtruth_5", "halludial_2", "faithdial_4"])
def test_a_command_with_hardware_is_one_that_its_script_takes(table: str) -> None:
    given = compose("train", "model=critic", "trainer=fsdp", "trainer.devices=2").trainer
    place = Place(scale=PAPER, out=Path("out"), trainer=dict(given), engine={"num_gpus": 8, "memory_fraction": 0.8})
    for step in all_results(PAPER)[table].steps:
        if hardware := steps.hardware_arguments(step, place):
            arguments = [*step.arguments, "scale=paper", *hardware]
            config = plain_config(step.script, *arguments)
            if "engine=auto" in arguments:
                assert config["engine"]["num_gpus"] == 8
            else:
                assert config["trainer"]["strategy"] == "fsdp" and config["trainer"]["devices"] == 2


def test_the_list_names_data_prompts_hardware_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def described(*arguments: str) -> dict[str, str]:
        reproduce.main(compose("reproduce", "table=list", f"out={tmp_path / 'out'}", *arguments))
        blocks = re.split(r"^(?=\S)", capsys.readouterr().out, flags=re.MULTILINE)
        return {block.partition(":")[0]: block for block in blocks if block}

    local = described()
    assert sorted(local) == sorted(list_names()) and not (tmp_path / "out").exists()
    assert "data: ragtruth: embedded" in local["ragtruth_2"] and "comparable: 0 of 45" in local["ragtruth_2"]
    (tmp_path / "ragtruth").mkdir()
    empty = described("scale=paper", f"data_dir={tmp_path}")["ragtruth_2"]
    assert "data: ragtruth: missing" in empty and "comparable: 0 of 45" in empty, "an empty folder gives nothing"
    (tmp_path / "ragtruth" / "response.jsonl").touch()
    paper = described("scale=paper", f"data_dir={tmp_path}")
    assert "data: ragtruth: given" in paper["ragtruth_2"] and "comparable: 45 of 45" in paper["ragtruth_2"]
    assert "hardware: CPU" in paper["ragtruth_2"] and "4 GPUs of 80 GB, 1 training" in paper["ragtruth_5"]
    assert "prompts: ragtruth: spans (ours)" in paper["ragtruth_6"] and "OpenAI's server" in paper["ragtruth_6"]
    assert "halludial: missing" in paper["halludial_2"] and "comparable: by eye" in paper["ragtruth_figure_2"]


def test_a_table_is_printed_and_written_with_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "diahalu").mkdir()  # a release with several versions, of which the paper's is read
    (written,) = Path(written_layout("diahalu", {"test": 40})).glob("*.jsonl")
    for name in ("DiaHalu_V1.jsonl", "DiaHalu_V2.xlsx"):
        (tmp_path / "diahalu" / name).symlink_to(written)
    report, out = tmp_path / "report.md", tmp_path / "out"
    paths = (f"data_dir={tmp_path}", f"out={out}", f"report={report}")
    reproduce.main(compose("reproduce", "table=[diahalu_1,diahalu_2]", *paths))
    printed = capsys.readouterr().out
    assert "here are 40 dialogues, in the paper 748" in printed and "48.16" in printed and "13.5091" in printed
    cells = json.loads((out / "tables" / "diahalu_2.json").read_text("utf-8"))["cells"]
    rates = {cell["row"]: cell for cell in cells if cell["column"] == "rate, %"}
    assert rates["all"]["paper"] == 43.98 and rates["all"]["ours"]["low"] < rates["all"]["ours"]["value"]
    assert all(cell["verdict"] == "not comparable" for cell in cells if cell["column"] == "dialogues")
    text = report.read_text("utf-8")
    assert "diahalu_2: DiaHalu" in text.replace("\\", "") and "| describe_diahalu | " in text


def test_a_table_states_the_rows_that_were_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "faithdial_audit" / "gold"
    folder.mkdir(parents=True)
    rows = ["A lake.,Where?,There.,Entailment,edification", ",,,,", ",,,,", "A lake.,,Here.,,"]
    (folder / "wow.csv").write_text("\n".join(["evidence,history,response,BEGIN,VRM", *rows]))
    reproduce.main(compose("reproduce", "table=faithdial_1", f"data_dir={tmp_path}", f"out={tmp_path / 'out'}"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "rows left out by describe_audit: blank row 2, no label 1" in printed


NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
WIDTHS = st.floats(0, 1e3, allow_nan=False)
DIGITS = st.integers(0, 4)
OPPOSITE = {c.ABOVE: c.BELOW, c.BELOW: c.ABOVE, c.WITHIN: c.WITHIN}


@st.composite
def estimates(draw: st.DrawFn) -> c.Estimate:
    value = draw(NUMBERS)
    if draw(st.booleans()):
        return c.Estimate(value=value)
    return c.Estimate(value=value, low=value - draw(WIDTHS), high=value + draw(WIDTHS))


@given(estimates(), NUMBERS, st.floats(0, 1), DIGITS, WIDTHS)
def test_a_figure_is_within_above_or_below(
    ours: c.Estimate, published: float, place: float, digits: int, more: float
) -> None:
    low, high = (ours.value if bound is None else bound for bound in (ours.low, ours.high))

    def verdict(published: float, low: float, high: float) -> str:
        return c.compare_with_published(c.Estimate(value=ours.value, low=low, high=high), published, digits=digits)

    found = c.compare_with_published(ours, published, digits=digits)
    mirrored = c.Estimate(value=-ours.value, low=-high, high=-low)
    assert c.compare_with_published(mirrored, -published, digits=digits) == OPPOSITE[found]
    away = 10.0**-digits + 1e-6 * max(1, abs(published))
    if published > high + away or published < low - away:
        assert found == (c.BELOW if published > high else c.ABOVE)
    inside = min(max(low + place * (high - low), low), high)
    assert verdict(inside, low, high) == verdict(inside, low - more, high + more) == c.WITHIN
    rounded = c.Estimate(value=ours.value)
    assert c.compare_with_published(rounded, round(ours.value, digits), digits=digits) == c.WITHIN


DESCRIBE = Step(
    name="describe",
    script="construct",
    arguments=("pipeline=describe", "pipeline.dataset=diahalu", "pipeline.plots=false", "pipeline.num_resamples=20"),
    corpora={"pipeline.path": "diahalu"},
)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as data_dir: DiaHalu's layout, of forty dialogues."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "diahalu").symlink_to(written_layout("diahalu", {"test": 40}))
    return folder


def cell(result: object, published: float | None = 10.0, why: str = "") -> c.Cell:
    return c.Cell(row="row", column="column", published=published, digits=1, result=result, why=why)  # type: ignore[arg-type]


def table(*cells: c.Cell, steps: tuple[Step, ...] = (DESCRIBE,), whole: int | None = None) -> c.Table:
    counted = ("basic", "all", "counts", "num_responses")
    return c.Table(
        name="diahalu_2",
        title="title",
        published="diahalu_counts",
        cells=cells,
        steps=steps,
        whole=None if whole is None else c.Whole(step="describe", count=counted, number=whole, unit="dialogues"),
    )


def write_metrics(place: Place, step: str, metrics: dict[str, dict[str, float]]) -> None:
    place.folder(step).mkdir(parents=True)
    (place.folder(step) / "metrics.json").write_text(json.dumps({"metrics": metrics, "meta": {}}))


FIGURE = {"value": 0.1, "low": 0.05, "high": 0.2, "n": 7}
RATE = c.Metric("describe", "all/diahalu/rate")
NUMBER = c.Count("describe", ("basic", "all", "counts", "num_responses"))


@pytest.mark.slow
def test_a_step_is_run_once_and_resumed(corpora: Path, tmp_path: Path) -> None:
    place = Place(scale=LOCAL, out=tmp_path, data_dir=corpora)
    assert steps.step_state(DESCRIBE, place) == steps.NEW
    assert steps.run_steps([DESCRIBE], place) == {}
    record = steps.read_record(DESCRIBE, place)
    assert record and record.ended and record.cpu_seconds and record.cpu_seconds > 0
    found = {one.cell.result: one for one in compare_table(table(cell(RATE), cell(NUMBER, 40.0), whole=40), place, {})}
    assert found[NUMBER].verdict == c.WITHIN and found[RATE].verdict == c.ABOVE
    part = {one.cell.result: one for one in compare_table(table(cell(RATE), cell(NUMBER, 41.0), whole=41), place, {})}
    assert (part[NUMBER].verdict, part[NUMBER].why) == (c.NOT_COMPARABLE, "here are 40 dialogues, in the paper 41")
    assert part[RATE].verdict == c.ABOVE  # a share of a part has an interval, and can be compared

    written = (place.folder("describe") / "metrics.json").stat().st_mtime_ns
    assert steps.run_steps([DESCRIBE], place) == {}
    assert (place.folder("describe") / "metrics.json").stat().st_mtime_ns == written
    with pytest.raises(UserError, match="other settings"):
        steps.step_state(DESCRIBE, Place(scale=LOCAL, out=tmp_path, data_dir=corpora, seed=1))

    kept = place.folder("describe").with_name("describe.json")
    kept.write_text(json.dumps({"command": list(record.command)}))  # as a kill leaves it
    assert steps.step_state(DESCRIBE, place) == steps.BEGUN
    assert steps.run_steps([DESCRIBE], place) == {} and steps.step_state(DESCRIBE, place) == steps.DONE


def test_a_failed_step_stops_only_the_steps_that_need_it(tmp_path: Path) -> None:
    place = Place(scale=LOCAL, out=tmp_path)
    wrong = Step(name="wrong", script="construct", arguments=("pipeline=describe", "pipeline.dataset=none_such"))
    needing = Step(name="needing", script="evaluate", arguments=("benchmark=begin",), steps={"checkpoint": "wrong"})
    without = steps.run_steps([wrong, needing], place)
    assert "failed with exit code 2" in without["wrong"] and without["needing"] == without["wrong"]
    assert "none_such" in (tmp_path / "steps" / "wrong.log").read_text("utf-8")
    (one,) = compare_table(table(cell(c.Metric("needing", "test/begin/f1")), steps=(wrong, needing)), place, without)
    assert (one.verdict, one.why) == (NOT_RUN, without["wrong"])


def test_figures_that_are_not_comparable_have_no_verdict(tmp_path: Path, corpora: Path) -> None:
    trained = Step(name="trained", script="train", arguments=(), corpora={"data.path": "wow"})
    scored = Step(name="scored", script="evaluate", arguments=(), corpora={"p": "diahalu"}, steps={"c": "trained"})
    small = Step(name="small", script="evaluate", arguments=(), corpora={"p": "diahalu"}, stand_in="a small one")
    place = Place(scale=LOCAL, out=tmp_path, data_dir=corpora)
    for step in (trained, scored, small):
        write_metrics(place, step.name, {"test/embedded-diahalu/f1": FIGURE})
    name = "test/diahalu/f1"
    cells = [
        cell(c.Metric("scored", name)),
        cell(c.Metric("small", name)),
        cell(c.Metric("scored", name), None, why="the figure is not at hand"),
        cell(c.Metric("scored", "test/diahalu/recall")),
        cell(None, why="people judged these"),
    ]
    found = compare_table(table(*cells, steps=(trained, scored, small)), place, {})
    assert [one.verdict for one in found] == [c.NOT_COMPARABLE] * 3 + [NOT_RUN] * 2
    reasons = [one.why for one in found]
    assert reasons[0] == "the embedded corpus in place of wow" and reasons[1:3] == ["a small one", cells[2].why]
    assert "no such figure" in reasons[3] and reasons[4] == "people judged these"
    caption = str(build_comparison_table(table(*cells), found, "").caption)
    assert "(1) the embedded corpus in place of wow" in caption and "3 not comparable, 2 not run" in caption
    own = replace(scored, name="own", steps={}, differs=("another sample",))
    few = replace(scored, name="few", steps={}, arguments=("benchmark.num_rows=24",))
    for one in (own, few):
        write_metrics(place, one.name, {name: FIGURE})
    cells = [cell(c.Metric("own", name)), cell(c.Metric("few", name, of_baseline=True))]
    cells.append(replace(cells[0], differs=("other histories",)))
    found = compare_table(table(*cells, steps=(own, few)), place, {})
    assert [one.differences for one in found] == [
        ("recipe differs: another sample",),
        ("at most 24 rows",),
        ("recipe differs: other histories, another sample",),
    ]
    assert {one.verdict for one in found} == {c.NOT_COMPARABLE} and found[1].why == "at most 24 rows"


@pytest.mark.parametrize("scale", [LOCAL, PAPER])
def test_recipes_that_differ_from_the_papers_have_no_verdict(scale: str, tmp_path: Path) -> None:
    results, place = all_results(scale), Place(scale=scale, out=tmp_path)

    def differences(name: str) -> dict[str, str]:
        shown = results[name]
        assert isinstance(shown, c.Table)
        traced = zip(shown.cells, trace_cells(shown, place), strict=True)
        return {f"{cell.row}|{cell.column}": "; ".join(found) for cell, (_, _, found) in traced if cell.result}

    assert all("recipe differs" in one for one in differences("faithdial_4").values())
    chosen = [one for row, one in differences("faithdial_8").items() if row.startswith("topical_chat")]
    assert chosen and all("token F1 of at least 0.2" in one for one in chosen)
    judged = {row: one for row, one in differences("halludial_2").items() if row.startswith("HalluJudge")}
    assert judged and all("recipe differs" in one for one in judged.values())
    assert "as JSON" in differences("ragtruth_5")["Llama-2-13B, fine-tuned; Data2txt|F1"]
    assert "share of hallucinated" in differences("diahalu_3")["Random; all|F1"]


def test_a_figure_of_unread_replies_is_not_shown(tmp_path: Path, corpora: Path) -> None:
    place = Place(scale=LOCAL, out=tmp_path, data_dir=corpora)
    step = Step(name="asked", script="evaluate", arguments=(), corpora={"p": "diahalu"})
    rates = {"": 0.3, "domain/chat/": 0.6, "domain/task/": 0.02}
    metrics = {f"test/diahalu/{part}unparsed_rate": {"value": rate} for part, rate in rates.items()}
    metrics |= {f"test/diahalu/{part}f1": {"value": 0.1} for part in (*rates, "model/a/")}
    write_metrics(place, "asked", metrics)
    cells = [cell(c.Metric("asked", f"test/diahalu/{part}f1")) for part in (*rates, "model/a/")]
    cells.append(cell(c.Metric("asked", "test/diahalu/domain/chat/f1", of_baseline=True)))
    found = compare_table(table(*cells, steps=(step,)), place, {})
    assert [one.unparsed for one in found] == [0.3, 0.6, 0.02, 0.3, 0.0], "of its part, or of all rows"
    assert [one.verdict for one in found] == [c.WITHIN, c.NOT_COMPARABLE, c.WITHIN, c.WITHIN, c.WITHIN]
    assert found[1].why == "60% of the replies could not be read as a verdict"
    shown = build_comparison_table(table(*cells), found, "")
    assert [str(value) for value in shown.columns[2].cells] == ["10.0", "-", "10.0", "10.0", "10.0"]
    assert "unparsed: 30% of the replies of row" in str(shown.caption)


def test_a_difference_has_the_interval_of_both_and_a_share_wilsons(tmp_path: Path) -> None:
    measured: dict[str, dict[str, dict[str, float]]] = {
        "after": {"test/a/b": {"value": 5, "low": 2, "high": 9}, "test/a/c": {"value": 5}},
        "before": {"test/a/b": {"value": 1, "low": -3, "high": 4}, "test/a/c": {"value": 1, "low": 0, "high": 2}},
    }
    place = Place(scale=LOCAL, out=tmp_path)
    for step, metrics in measured.items():
        write_metrics(place, step, metrics)
    pairs = [c.Difference(c.Metric("after", f"test/a/{name}", factor=1), "before") for name in "bc"]
    both, one = (pair.read(place.folder("after")) for pair in pairs)
    assert both and (both.value, both.low, both.high) == pytest.approx((4, 4 - 18**0.5, 4 + 32**0.5))
    assert one == c.Estimate(value=4)
    (tmp_path / "corpus.json").write_text(json.dumps({"classes": {"a": {"x": 1, "y": 3}}, "counts": {"n": 10, "k": 0}}))
    share = c.Share("s", ("classes", "a"), "x").read(tmp_path)
    assert share and (share.value, share.n) == (25.0, 4) and share.low and share.high and share.low < 25 < share.high
    none = c.Share("s", ("counts",), "k", of="n").read(tmp_path)
    assert none and none.value == none.low == 0.0 and none.n == 10
    assert c.Share("s", ("classes", "b"), "x").read(tmp_path) is None
    assert c.Difference(c.Metric("s", "test/a/b"), "t").read(tmp_path) is None
