"""`python report.py`: what a user sees in the terminal, and what is refused."""

import pytest

from faithkit.errors import UserError
from faithkit_workflows import report
from tests.faithkit_workflows.compare.made_up_runs import examples, judged, write_run
from tests.running import compose


def report_here(*overrides: str) -> None:
    """`python report.py ...` in this process."""
    report.main(compose("report", "num_resamples=20", *overrides))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rows = examples()
    for name, right, seed in (("good", 0.9, 1), ("fair", 0.8, 2), ("bad [bold]", 0.5, 3)):
        write_run(folder / name, rows, judged(rows, right, seed), seed=seed)
    return folder


def test_the_terminal_shows_what_differs_and_by_how_much(compared, capsys):
    report_here(f"runs={compared}", "html=null")
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("seed=1", "test/begin: the highest macro_f1 first", "begin: paired differences", "bad [bold]", "Holm"):
        assert part in shown, part
    assert "decoding" not in shown  # the same in all runs


def test_pairs_with_one_run_alone(compared, capsys):
    report_here(f"runs={compared}", "html=null", "against=good")
    shown = capsys.readouterr().out
    pairs = shown[shown.index("paired differences") :]
    assert pairs.count("good") == 4 and pairs.count("fair") == 2
    assert "begin: good is better than bad [bold], on 60 rows in 20 groups: macro-F1 +48" in pairs


def test_the_page_is_written_where_it_is_wanted(compared, tmp_path, capsys):
    names = "good", "fair"
    runs = ",".join(str(compared / name) for name in names)
    report_here(f"runs=[{runs}]", f"html={tmp_path / 'two.html'}")
    page = (tmp_path / "two.html").read_text()
    assert all(name in page for name in names) and "bad [bold]" not in page
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'two.html'}\n")


def test_no_runs_and_no_such_run_are_user_errors(compared, tmp_path):
    with pytest.raises(UserError, match="no run"):
        report_here(f"runs={tmp_path}/*", "html=null")
    with pytest.raises(UserError, match="no run is called 'god'"):
        report_here(f"runs={compared}", "against=god", "html=null")


def test_without_runs_those_of_the_folder_are_listed(compared, monkeypatch, capsys):
    monkeypatch.chdir(compared.parent)
    (compared.parent / "runs").symlink_to(compared)
    report_here()
    shown = capsys.readouterr().out
    assert "3 runs" in shown and "good" in shown
