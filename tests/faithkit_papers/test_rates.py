"""Hallucination rates by turn and by dialogue, what they leave out, and their table and plot."""

from pathlib import Path

import numpy as np
import pytest

from faithkit.metrics.judge_error import JudgeError
from faithkit.pages.page_tables import render_text
from faithkit.statistics.bootstrap import Groups
from faithkit_papers.rates import Case, Turns, evaluate_rates, plot_temperatures, rates_report

GROUPS = [str(number // 3) for number in range(60)]


def turns(called: list[float], replied: list[bool] | None = None) -> Turns:
    said = np.array([True] * len(called) if replied is None else replied)
    return Turns(called=np.array(called, float), replied=said, groups=Groups.of(GROUPS[: len(called)]))


def test_turns_without_a_verdict_or_a_reply_are_left_out_and_counted() -> None:
    nan = float("nan")
    found = (
        evaluate_rates(turns([1, nan, nan, nan, nan, nan, 0, 0, 0], [True, True] + [False] * 4 + [True] * 3))
        .score()
        .metrics
    )
    assert found["turn_rate"].value == pytest.approx(1 / 4) and found["turn_rate"].n == 4
    assert found["dialogue_rate"].value == pytest.approx(1 / 2) and found["dialogue_rate"].n == 2
    assert found["unparsed_rate"].value == pytest.approx(1 / 5)
    assert found["no_reply_rate"].value == pytest.approx(4 / 9)


def test_the_report_corrects_compares_histories_and_cites() -> None:
    gold = turns([float(number % 2) for number in range(60)])
    own = turns([float(number % 4 == 0) for number in range(60)])
    labels = [number % 2 for number in range(80)]
    called = [label if number % 10 else 1 - label for number, label in enumerate(labels)]
    error = JudgeError.of_rows(labels, called, [str(number) for number in range(80)], "80 rows")
    cases = {Case(system="small", history="gold"): gold, Case(system="small", history="self"): own}
    _, report = rates_report(
        cases, GROUPS, title="t", judged_by="j", error=error, dataset="halludial", num_resamples=50
    )
    found = report.metrics
    recall, alarms = (error.rates(np.ones((1, 80)))[i][0] for i in (0, 1))
    assert found["small/gold/turn_rate_corrected"].value == pytest.approx((0.5 - alarms) / (recall - alarms))
    assert found["difference/small/turn_rate"].value == pytest.approx(-0.25)
    assert found["p_value/small/turn_rate"].value < 0.05
    assert {name for name in found if name.startswith("difference")} == {
        "difference/small/turn_rate",
        "difference/small/dialogue_rate",
    }
    shown = render_text(*report.tables)
    assert "GPT-4o-2024-05-13 *" in shown and "2.8" in shown and "self - gold histories" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_the_report_says_what_has_no_reply_or_no_verdict() -> None:
    nan = float("nan")
    case = {Case(system="s", history="gold"): turns([1, nan, nan, 0, 0], [True, True, False, True, True])}
    notes = rates_report(case, GROUPS[:5], title="t", judged_by="j", num_resamples=20)[1].notes
    assert "s/gold: 1 of 5 turns got no reply: left out" in notes
    assert "s/gold: 1 of 4 replies got no readable verdict" in notes


def test_temperatures_have_a_column_and_a_plot(tmp_path: Path) -> None:
    cases = {
        Case(system="a$b", history=history, temperature=at): turns([float(n % (4 - at) == 0) for n in range(60)])
        for history in ("gold", "self")
        for at in (0.0, 1.0, 2.0)
    }
    rates, report = rates_report(cases, GROUPS, title="t", judged_by="j", num_resamples=20)
    assert "a$b/gold/temperature_2/turn_rate" in report.metrics
    assert report.metrics["difference/a$b/temperature_1/turn_rate"].value == 0
    path = plot_temperatures(rates, tmp_path / "t.png")
    assert path.read_bytes().startswith(b"\x89PNG")
