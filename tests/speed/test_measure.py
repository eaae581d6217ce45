"""The arithmetic of the benchmarks, and the processes in other environments that they ask."""

import sys
from pathlib import Path

import numpy as np
import pytest

from speed.growth_speed import fit_exponent
from speed.measure import BenchmarkParser, Ratio, alternate, machine, rates, start_worker, write_results


def test_sides_take_turns_and_a_warm_up_does_not_count() -> None:
    now, calls = 0.0, []

    def side(name: str, seconds: float) -> None:
        nonlocal now
        calls.append(name)
        now += seconds

    sides = {"a": lambda: side("a", 2.0), "b": lambda: side("b", 3.0)}
    taken = alternate(sides, 2, warm_up=True, clock=lambda: now)
    assert taken == {"a": [2.0, 2.0], "b": [3.0, 3.0]}
    assert calls == ["b", "a", "a", "b", "b", "a"]


def test_a_side_apart_leaves_the_process_as_it_was() -> None:
    calls: list[int] = []
    taken = alternate({"a": lambda: calls.append(1), "b": lambda: float(len(calls))}, 2, apart=True)
    assert (calls, taken["b"]) == ([], [0.0, 0.0])


def test_rates_are_compared_by_item_and_round_with_the_first_side() -> None:
    assert str(Ratio.of(slow=[4.0, 9.0, 40.0], fast=[2.0, 3.0, 10.0])) == "3.00x (2.00 to 4.00)"
    taken = {"slow": [4.0, 4.0], "fast": [1.0, 1.0]}
    assert rates(taken, 8) == [["slow", "2.0", "1.00x (1.00 to 1.00)"], ["fast", "8.0", "4.00x (4.00 to 4.00)"]]
    assert rates(taken, {"slow": 2, "fast": 1}, digits=2)[1] == ["fast", "1.00", "2.00x (2.00 to 2.00)"]


def test_quick_divides_the_sizes_and_runs_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x_speed", "--quick", "--num-rows", "320"])
    options = BenchmarkParser("Measures.", num_rows=64, pairs=8).parse()
    assert (options.rounds, options.num_rows, options.pairs, options.quick) == (1, 20, 2, True)


def test_results_name_command_and_machine_and_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rounds", "3", f"--x={tmp_path}", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train_speed.py"), *arguments])
    path = tmp_path / "speed.md"
    write_results("Training", "| a |", quick=True, path=path)
    assert "| a |" in capsys.readouterr().out and not path.exists()
    write_results("Training", "| a |", path=path)
    text = path.read_text()
    assert "`python -m speed.train_speed --rounds 3 --x=PATH PATH`" in text
    assert machine() in text
    assert str(tmp_path) not in text
    write_results("Other", "kept", path=path)
    write_results("Training", "| b |", path=path)
    text = path.read_text()
    assert "| a |" not in text and text.count("## ") == 2
    assert text.startswith("# Results\n\n## Training\n\n| b |\n") and "\n\n## Other\n\nkept\n" in text


@pytest.mark.parametrize(("exponent", "scale"), [(-0.5, 100.0), (1.0, 0.1), (1.2, 0.1)])
def test_the_exponent_is_that_of_what_grows_beyond_the_start(exponent: float, scale: float) -> None:
    sizes = np.repeat(10.0 ** np.arange(1, 6), 3)
    values = (6 + scale * sizes**exponent) * np.random.default_rng(0).normal(1, 0.02, len(sizes))
    found, low, high = (float(number.strip("[],")) for number in fit_exponent(sizes, values, 6.0).split())
    assert found == pytest.approx(exponent, abs=0.05)
    assert low < found < high < low + 0.2


ANSWER = """import json, os, sys
for line in sys.stdin:
    print(json.dumps([line.split(), os.environ["PEER"]]), flush=True)
"""


def test_a_worker_answers_each_line_and_has_its_environment() -> None:
    with start_worker([sys.executable, "-c", ANSWER], PEER="here") as ask:
        assert ask("predict", 0, 2) == [["predict", "0", "2"], "here"]
        assert ask("end") == [["end"], "here"]


def test_a_worker_that_ends_shows_its_error() -> None:
    with pytest.raises(SystemExit, match="ZeroDivisionError"), start_worker([sys.executable, "-c", "1 / 0"]) as ask:
        ask("predict")
