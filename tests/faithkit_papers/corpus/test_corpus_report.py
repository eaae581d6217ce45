import importlib
import json
import sys

import pytest

from faithkit.errors import UserError
from faithkit_papers.corpus import corpus_plots
from faithkit_papers.corpus.corpus_rows import CorpusRows
from faithkit_papers.corpus.describe import report_corpus as write_report
from tests.faithkit_papers.corpus.test_corpus_stats import BASELESS, CONFLICT, CORPUS, example


def report_corpus(examples, folder, **options):
    return write_report(CorpusRows(overlap=False).add_all(examples), folder, full=False, **options)


def test_numbers_and_plots_are_written(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    nasty = example("z", spans=(CONFLICT, BASELESS), task="$x_{1}$ \\frac <b>", model="\x1b[31m\u202e$y$")
    stats = report_corpus([*CORPUS, nasty], tmp_path / "out")
    assert json.loads((tmp_path / "out" / "corpus.json").read_text()) == stats.to_dict()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    plots = {f"{name}.png" for name in ("types", "positions", "lengths", "models")}
    assert names == {"corpus.json", "report.md", "report.html", *plots}
    for path in (tmp_path / "out").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "by generator" in printed
    assert not {"\x1b", "\u202e"} & set(printed)


def test_a_corpus_without_a_span_or_a_generator_is_plotted_too(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    report_corpus([example("a", model=None), example("b", response="", model=None)], tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"types.png", "positions.png", "lengths.png"}


def test_the_analysis_of_marked_responses_wants_spans(tmp_path):
    with pytest.raises(UserError, match="none of 1 examples has marked spans"):
        report_corpus([example("a", spans=None)], tmp_path, plots=False)


def test_without_matplotlib_the_user_learns_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    importlib.reload(corpus_plots)  # the module itself does without
    with pytest.raises(UserError, match=r'pip install "\.\[plots\]"'):
        report_corpus(CORPUS, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report_corpus(CORPUS, tmp_path / "out", plots=False)
    assert (tmp_path / "out" / "corpus.json").exists()
