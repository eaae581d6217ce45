"""Sweeps in the report: the ranking by validation, seeds as repeats, and which settings mattered."""

import json
import sys

import numpy as np
import pytest

from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import find_runs, read_run
from faithkit.runs.sweeps import SweepJob, SweepRecord, write_sweep
from faithkit.statistics.metric import average_runs
from faithkit_workflows.compare import sweep_settings
from faithkit_workflows.compare.page import write_report_page
from faithkit_workflows.compare.report import compare_runs
from faithkit_workflows.compare.sweep import rank_sweep, sweeps_of
from faithkit_workflows.compare.sweep_plot import plot_sweep
from faithkit_workflows.compare.sweep_settings import effects_of, grouped, permutation_p
from tests.browser import PROGRAM, chromium
from tests.faithkit_workflows.sweep.sweeping import write_job


def write_sweep_runs(folder, table, *, arguments=("seed=0,1",), **options):
    """A finished sweep: of each job its settings and its validation."""
    folder.mkdir(exist_ok=True)
    jobs = {}
    for number, (settings, value) in enumerate(table):
        name = f"job{number}"
        jobs[name] = SweepJob(name=name, settings=settings, ended="done" if value is not None else "failed")
        if value is not None:
            write_job(folder / name, value, **options)
    varied = tuple(dict.fromkeys(key for settings, _ in table for key in settings))
    write_sweep(SweepRecord(folder=folder, arguments=arguments, varied=varied, jobs=jobs))
    return folder


def ranked(folder):
    (found,), problems = sweeps_of(find_runs(f"{folder}/*"))
    assert not problems
    return found


def test_validation_ranks_and_the_test_figure_does_not(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"lr": "1"}, 0.6), ({"lr": "2"}, 0.8), ({"lr": "3"}, 0.7)])
    write_job(tmp_path / "other", 0.6, test=0.99)
    (folder / "job0" / "metrics.json").write_bytes((tmp_path / "other" / "metrics.json").read_bytes())
    (ranking,) = ranked(folder).rankings
    assert [row.settings["lr"] for row in ranking.rows] == ["2", "3", "1"]
    assert [row.test.value for row in ranking.rows] == [0.5, 0.5, 0.99]


def test_a_loss_ranks_the_lowest_first(tmp_path):
    table = [({"lr": "1"}, 0.6), ({"lr": "2"}, 0.8)]
    (ranking,) = ranked(write_sweep_runs(tmp_path / "s", table, monitor="validation/x/loss", mode="min")).rankings
    assert [row.settings["lr"] for row in ranking.rows] == ["1", "2"] and ranking.is_lower_better


def test_runs_that_differ_in_the_seed_are_one_row_with_an_interval(tmp_path):
    table = [
        ({"lr": lr, "seed": seed}, value)
        for lr, seed, value in (("1", "0", 0.5), ("1", "1", 0.9), ("2", "0", 0.75), ("2", "1", 0.77))
    ]
    (ranking,) = ranked(write_sweep_runs(tmp_path / "s", table)).rankings
    assert [dict(row.settings) for row in ranking.rows] == [{"lr": "2"}, {"lr": "1"}], "means rank, not lucky seeds"
    assert ranking.rows[0].validation == average_runs([0.77, 0.75])
    reach = 12.7062 * 0.01 * 2**0.5 / 2**0.5  # Student's t of one degree of freedom
    assert ranking.rows[0].validation.high == pytest.approx(0.76 + reach, abs=1e-5)


def test_other_metrics_failed_jobs_and_a_run_of_nobody_are_told(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"model": "a"}, 0.6), ({"model": "b"}, 0.7), ({"model": "c"}, None)])
    for name, value in (("job1", 0.2), ("stray", 0.9)):
        if name == "job1":
            for path in sorted((folder / name).rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (folder / name).rmdir()
        write_job(folder / name, value, monitor="validation/embedded/char_f1")
    found = ranked(folder)
    assert len(found.rankings) == 2 and all(len(one.rows) == 1 for one in found.rankings)
    told = " ".join(found.notes)
    for words in ("each is ranked by itself", "job2 failed", "stray is in the folder, and none of its jobs"):
        assert words in told


def test_a_damaged_record_leaves_the_runs_to_the_rest_of_the_report(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"lr": "1"}, 0.6)])
    (folder / "sweep.json").write_text("{")
    found, problems = sweeps_of(find_runs(f"{folder}/*"))
    assert not found and "its runs are not ranked" in problems[0]


def test_runs_of_no_sweep_are_not_ranked(tmp_path):
    write_job(tmp_path / "a", 0.5)
    assert sweeps_of(find_runs(tmp_path)) == ([], [])


def test_older_runs_are_ranked_by_their_curves_and_a_trained_one_by_what_it_wrote(tmp_path, trained):
    write_job(tmp_path / "old", 0.5, monitor="validation/f1")
    path = tmp_path / "old" / "metrics.json"
    path.write_text(json.dumps({"metrics": json.loads(path.read_text())["metrics"], "meta": {}}))
    found = chosen_of(read_run(tmp_path / "old"))
    assert found is not None and found.metric.value == 0.75, "of csv/metrics.csv"
    own = chosen_of(read_run(trained))
    assert own is not None and own.monitor == "validation/embedded/macro_f1" and 0 < own.metric.value <= 1


def test_four_runs_can_never_tell_more_than_one_in_three():
    scores = np.array([0.9, 0.8, 0.2, 0.1])
    assert permutation_p(["a", "a", "b", "b"], scores) == pytest.approx(1 / 3)
    assert permutation_p(["a", "b", "a", "b"], scores) > 1 / 3
    assert permutation_p(list("aaaaabbbbb"), np.r_[np.arange(5) + 10.0, np.arange(5)]) < 0.02


def test_many_numbers_are_told_in_thirds_and_names_as_they_are():
    assert (
        grouped(["1e-5", "2e-5", "3e-5", "4e-5", "5e-5", "6e-5"])
        == ["1e-05 to 2e-05"] * 2 + ["3e-05 to 4e-05"] * 2 + ["5e-05 to 6e-05"] * 2
    )
    assert grouped(["b", "a"]) == ["b", "a"] and grouped(["0.1", "0.2"]) == ["0.1", "0.2"]


def settings_table(count):
    rng = np.random.default_rng(0)
    for number in range(count):
        lr, dropout, seed = 10 ** rng.uniform(-5, -3), number % 2, number % 3
        yield (
            {"lr": repr(lr), "dropout": str(dropout), "seed": str(seed)},
            0.9 + 0.1 * np.log10(lr / 1e-3) + 0.02 * dropout,
        )


def test_the_setting_that_mattered_has_the_largest_share(tmp_path):
    pytest.importorskip("optuna")
    (ranking,) = ranked(write_sweep_runs(tmp_path / "s", list(settings_table(24)))).rankings
    effects = effects_of(ranking)
    assert effects.settings[0].key == "lr" and effects.settings[0].importance > 0.8
    assert effects.settings[0].corrected < 0.01 < effects.settings[-1].p_value
    assert sum(one.importance for one in effects.settings) == pytest.approx(1)
    assert [metric.n for metric in effects.settings[0].values.values()] == [8, 8, 8]
    assert any("seed is chance" in note for note in effects.notes)
    assert plot_sweep(ranking, effects).startswith(b"<?xml")


def test_too_few_runs_and_a_missing_package_are_said_in_the_place_of_a_figure(tmp_path, monkeypatch):
    (few,) = ranked(write_sweep_runs(tmp_path / "few", list(settings_table(6)))).rankings
    effects = effects_of(few)
    assert all(one.importance is None for one in effects.settings)
    assert any("6 runs are too few for the importance of 3 settings: 12 are enough" in note for note in effects.notes)
    (two,) = ranked(write_sweep_runs(tmp_path / "two", list(settings_table(2)))).rankings
    assert not effects_of(two).settings and plot_sweep(two, effects_of(two)) is None
    (many,) = ranked(write_sweep_runs(tmp_path / "many", list(settings_table(12)))).rankings
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    monkeypatch.setattr(sweep_settings, "find_spec", lambda name: None)
    assert any("pip install '.[sweep]'" in note for note in effects_of(many).notes)
    assert any("hint only" in note for note in effects_of(many, is_adaptive=True).notes)


def test_only_the_runs_that_are_given_are_ranked(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"lr": "1"}, 0.6), ({"lr": "2"}, 0.8)])
    record = sweeps_of(find_runs(f"{folder}/*"))[0][0].record
    found = rank_sweep(record, [read_run(folder / "job0")])
    assert [one.run.name for one in found.rankings[0].runs] == ["job0"] and "nothing to rank" in " ".join(found.notes)


def test_the_page_shows_the_sweep_before_all_else_and_no_name_is_markup(tmp_path):
    table = [({"lr": lr, "<b>": "<i>x"}, value) for lr, value in (("1", 0.5), ("2", 0.7), ("3", 0.6))]
    folder = write_sweep_runs(tmp_path / "s", table)
    report = compare_runs(find_runs(f"{folder}/*"), num_resamples=20)
    write_report_page(tmp_path / "page.html", report, title="Runs")
    page = (tmp_path / "page.html").read_text()
    assert page.index('id="sweep-0"') < page.index('id="runs"') and "data:image/svg+xml" in page
    assert "<i>x" not in page and "faithkit train" in page and "3 runs are too few" in page


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")
def test_a_reader_sorts_the_ranking_and_nothing_leaves_the_window(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", list(settings_table(12)))
    report = compare_runs(find_runs(f"{folder}/*"), num_resamples=20)
    write_report_page(tmp_path / "page.html", report, title="Runs")
    with chromium() as browser:
        for width, dark in ((1280, False), (390, True)):
            browser.window(width, 900, dark=dark)
            browser.open(f"file://{tmp_path / 'page.html'}")
            assert browser.ask("document.documentElement.scrollWidth") <= width
        places = "#sweep-0-ranking tbody tr > :nth-child(1)"
        assert browser.texts(places) == [str(place) for place in range(1, 13)]
        browser.click("#sweep-0-ranking thead button")
        assert browser.texts(places)[0] == "12"
        settings = set(browser.texts("#sweep-0-effects tbody tr > :nth-child(1)"))
        assert settings == {"lr", "dropout", "seed"} and browser.complaints == []
