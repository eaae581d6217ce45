"""Searches by Optuna: results, the number of trials, resuming, failures."""

import math

import pytest

from faithkit.errors import UserError
from faithkit.signals import Interrupted
from tests.faithkit_workflows.sweep.sweeping import Failure, Trainings, sweep_here

optuna = pytest.importorskip("optuna")
LR = "optimizer.lr=tag(log,interval(1e-5,1e-2))"
SEARCH = ("sweep=optuna", LR, "model.dropout=0.0,0.1")


def peak(settings) -> float:
    """Best where lr is 1e-3 and dropout 0.1."""
    away = abs(math.log10(float(settings["optimizer.lr"])) + 3)
    return 0.9 - 0.2 * away - 0.1 * (settings["model.dropout"] == "0.0")


def learning_rates(trainings: Trainings) -> list[float]:
    return [float(dict(t.partition("=")[::2] for t in job.arguments)["optimizer.lr"]) for job in trainings.started]


def test_the_search_finds_the_peak_of_the_validation_figure(tmp_path, capsys):
    trainings = Trainings(peak)
    sweep_here(trainings, *SEARCH, "sweep.num_trials=30", f"run_dir={tmp_path / 'sweep'}")
    rates = learning_rates(trainings)
    assert len(rates) == 30 and all(1e-5 <= rate <= 1e-2 for rate in rates)
    first, last = ([abs(math.log10(rate) + 3) for rate in part] for part in (rates[:10], rates[-10:]))
    assert sum(last) < 0.6 * sum(first), "later trials lie nearer to the best"
    assert trainings.names[0].startswith("000_lr-") and trainings.names[29].startswith("029_lr-")
    assert "the best of 30 runs" in capsys.readouterr().out


def test_an_interrupted_search_keeps_its_count_and_draws_no_point_twice(tmp_path):
    folder, stop_at = tmp_path / "sweep", 4

    def stopped(settings) -> float:
        if len(first.started) == stop_at:
            raise Interrupted("a signal")
        return peak(settings)

    first = Trainings(stopped)
    with pytest.raises(Interrupted, match="-m resume="):
        sweep_here(first, *SEARCH, "sweep.num_trials=8", "sweep.sampler=random", f"run_dir={folder}")
    second = Trainings(peak)
    sweep_here(second, f"resume={folder}")
    assert second.names[0] == first.names[-1], "the interrupted job is resumed first"
    assert len({*first.names, *second.names}) == 8 and len(second.names) == 5
    assert len(set(learning_rates(first)[:3] + learning_rates(second))) == 8, "no point is drawn again"
    third = Trainings(peak)
    sweep_here(third, f"resume={folder}", "sweep.num_trials=10")
    assert len(third.names) == 2, "the number of trials can be raised"


@pytest.mark.slow
def test_a_failed_trial_is_repeated(tmp_path):
    folder = tmp_path / "sweep"

    def failing(settings) -> float:
        if len(first.started) == 2:
            raise Failure(1, "ValueError: broken")
        return peak(settings)

    first = Trainings(failing)
    with pytest.raises(UserError, match=r"of 4 jobs 1 failed; 001_.*ValueError: broken"):
        sweep_here(first, *SEARCH, "sweep.num_trials=4", f"run_dir={folder}")
    again = Trainings(peak)
    sweep_here(again, f"resume={folder}")
    assert again.names == [first.names[1]]


def test_integers_are_searched_as_integers(tmp_path):
    trainings = Trainings(lambda settings: 1 / (1 + int(settings["data.num_train"])))
    counts = ("data.num_train=int(interval(100,900))", "model.num_epochs=range(1,4)")
    sweep_here(trainings, "sweep=optuna", *counts, "sweep.num_trials=3", f"run_dir={tmp_path / 'sweep'}")
    given = [dict(text.partition("=")[::2] for text in job.arguments) for job in trainings.started]
    assert all(100 <= int(one["data.num_train"]) <= 900 and one["model.num_epochs"] in "123" for one in given)


def test_settings_outside_of_the_search_are_refused(tmp_path):
    folder = tmp_path / "sweep"
    sweep_here(Trainings(peak), *SEARCH, "sweep.num_trials=2", f"run_dir={folder}")
    path = folder / "sweep.json"
    path.write_text(path.read_text().replace('"model.dropout": "0.', '"model.dropout": "7.'))
    with pytest.raises(UserError, match="other settings than this sweep: 7"):
        sweep_here(Trainings(peak), f"resume={folder}")
