"""The report of a corpus of marked responses, and `benchmark=analysis`, which reads RAGTruth as the paper does."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit_papers.corpus import corpus_views
from faithkit_papers.corpus.corpus_rows import CorpusRows
from faithkit_papers.corpus.describe import report_corpus as write_report
from tests.data_modules.official.spans import RAGTRUTH, RAGTRUTH_SOURCES
from tests.data_modules.official_rows import write
from tests.faithkit_papers.corpus.test_corpus_stats import BASELESS, CONFLICT, CORPUS, example
from tests.running import evaluate_here


def report_corpus(examples, folder, **options):
    return write_report(CorpusRows(examples, overlap=False), folder, full=False, **options)


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
    importlib.reload(corpus_views)  # the module itself does without
    with pytest.raises(UserError, match=r'pip install "\.\[plots\]"'):
        report_corpus(CORPUS, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report_corpus(CORPUS, tmp_path / "out", plots=False)
    assert (tmp_path / "out" / "corpus.json").exists()


QUALITIES = ("good", "incorrect_refusal", "truncated", "good")


def corpus(folder: Path, model: str = "Mistral-7B-Instruct") -> Path:
    """RAGTruth's files with rows of both splits and of every quality."""
    splits = ("train", "train", "test", "test")
    rows = [
        {**row, "split": split, "quality": quality, "model": model}
        for row, split, quality in zip(RAGTRUTH, splits, QUALITIES, strict=True)
    ]
    write(folder / "response.jsonl", rows)
    write(folder / "source_info.jsonl", RAGTRUTH_SOURCES)
    return folder


def analyse(path: str, run_dir: Path, *options: str) -> int:
    """Counts the responses that the analysis finds."""
    given = (f"benchmark.path={path}", f"run_dir={run_dir}", *options)
    evaluate_here("benchmark=analysis", "benchmark.plots=false", *given)
    basic = json.loads((run_dir / "corpus.json").read_text())["basic"]
    return sum(line["counts"]["num_responses"] for name, line in basic.items() if name != "all")


def test_every_split_and_quality_is_read_and_others_by_option(tmp_path: Path) -> None:
    path = str(corpus(tmp_path / "data"))
    assert analyse(path, tmp_path / "all") == 4
    good = "benchmark.options.quality=good"
    assert analyse(path, tmp_path / "good", good) == 2
    official = ("benchmark.options.official_split=true", "benchmark.split=train")
    assert analyse(path, tmp_path / "train", *official) == 2


def test_the_papers_figures_are_shown_and_a_partial_corpus_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analyse(str(corpus(tmp_path / "data")), tmp_path / "run", "verbose=true")
    shown = capsys.readouterr().out
    assert "Niu et al. 2024, arXiv 2401.00396, first version, Table 2, Table 3, Table 4" in " ".join(shown.split())
    for figure in ("17,838", "14,781", "3,155", "9,443", "1,985", "1.53", "(448, 1,253]", "1.21"):
        assert figure in shown, figure
    assert "these are 4 responses, the paper's 17,838" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line[:1] in "+|")


@pytest.mark.parametrize("path", ["embedded", "own models"])
def test_other_data_has_no_published_figures(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = path if path == "embedded" else str(corpus(tmp_path / "data", model="our-own"))
    analyse(path, tmp_path / "run", "benchmark.num_rows=4" if path != "embedded" else "benchmark.num_rows=60")
    assert "paper" not in capsys.readouterr().out
