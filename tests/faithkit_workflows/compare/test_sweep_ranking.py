"""Sweeps in the report: the ranking by validation, and seeds as repetitions."""

import shutil

import pytest

from faithkit.runs.listing import SweepJob, SweepRecord, write_sweep
from faithkit.runs.reading import find_runs
from faithkit.statistics.metric import average_runs
from faithkit_workflows.compare.comparison import rank_sweeps
from tests.faithkit_workflows.sweeping import write_job


def write_sweep_runs(folder, table, *, arguments=("seed=0,1",), **options):
    """Writes a finished sweep: the settings and the validation of each job."""
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


def read_ranked(folder):
    (found,), problems = rank_sweeps(find_runs(f"{folder}/*"))
    assert not problems
    return found


def test_runs_are_ranked_by_validation_and_not_by_test(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"lr": "1"}, 0.6), ({"lr": "2"}, 0.8), ({"lr": "3"}, 0.7)])
    write_job(tmp_path / "other", 0.6, test=0.99)
    (folder / "job0" / "metrics.json").write_bytes((tmp_path / "other" / "metrics.json").read_bytes())
    (ranking,) = read_ranked(folder).rankings
    assert [row.settings["lr"] for row in ranking.rows] == ["2", "3", "1"]
    assert [row.test.value for row in ranking.rows] == [0.5, 0.5, 0.99]


def test_the_lowest_loss_is_first(tmp_path):
    table = [({"lr": "1"}, 0.6), ({"lr": "2"}, 0.8)]
    folder = write_sweep_runs(tmp_path / "s", table, monitor="validation/x/loss", mode="min")
    (ranking,) = read_ranked(folder).rankings
    assert [row.settings["lr"] for row in ranking.rows] == ["1", "2"] and ranking.is_lower_better


def test_runs_that_differ_only_in_the_seed_are_one_row_with_an_interval(tmp_path):
    table = [
        ({"lr": lr, "seed": seed}, value)
        for lr, seed, value in (("1", "0", 0.5), ("1", "1", 0.9), ("2", "0", 0.75), ("2", "1", 0.77))
    ]
    (ranking,) = read_ranked(write_sweep_runs(tmp_path / "s", table)).rankings
    assert [dict(row.settings) for row in ranking.rows] == [{"lr": "2"}, {"lr": "1"}]
    assert ranking.rows[0].validation == average_runs([0.77, 0.75])
    margin = 12.7062 * 0.01 * 2**0.5 / 2**0.5  # Student's t of one degree of freedom
    assert ranking.rows[0].validation.high == pytest.approx(0.76 + margin, abs=1e-5)


def test_other_metrics_failed_jobs_and_unknown_runs_are_reported(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"model": "a"}, 0.6), ({"model": "b"}, 0.7), ({"model": "c"}, None)])
    shutil.rmtree(folder / "job1")
    for name, value in (("job1", 0.2), ("stray", 0.9)):
        write_job(folder / name, value, monitor="validation/embedded/char_f1")
    sweep = read_ranked(folder)
    assert len(sweep.rankings) == 2 and all(len(one.rows) == 1 for one in sweep.rankings)
    notes = " ".join(sweep.notes)
    for words in ("each is ranked separately", "job2 failed", "stray is in the folder, and none of its jobs"):
        assert words in notes


def test_a_damaged_record_and_runs_without_a_sweep_are_not_ranked(tmp_path):
    folder = write_sweep_runs(tmp_path / "s", [({"lr": "1"}, 0.6)])
    (folder / "sweep.json").write_text("{")
    sweeps, problems = rank_sweeps(find_runs(f"{folder}/*"))
    assert not sweeps and "its runs are not ranked" in problems[0]
    write_job(tmp_path / "plain" / "a", 0.5)
    assert rank_sweeps(find_runs(tmp_path / "plain")) == ([], [])
