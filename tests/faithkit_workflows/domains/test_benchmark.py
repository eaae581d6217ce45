"""`evaluate.py benchmark=domains` on embedded corpora."""

import json
import re
from pathlib import Path

import pytest

from faithkit.baselines.word_features import unsupported_share
from faithkit.files.jsonl import write_jsonl
from faithkit_workflows.domains.benchmark import count_test_accesses
from faithkit_workflows.domains.domain_rows import read_all_domains, read_domains
from faithkit_workflows.settings.benchmark_blocks import ALL, DEV, HELD
from tests.faithkit_workflows.domains.corpora import SETS, write_corpora
from tests.running import evaluate_here, plain_config

ONLY = "benchmark.only=[xsum,snli,conjnli]"


def score_all(path: Path, *overrides: str) -> Path:
    """Writes word overlap's scores of all rows as predictions."""
    domains = read_all_domains(plain_config("evaluate", "benchmark=domains", *overrides)["benchmark"])
    rows = [row for rows_of in domains.values() for row in rows_of.select_part(ALL).inputs]
    shares = {row.id: unsupported_share(row.knowledge, row.response) for row in rows}
    labels = {id: "hallucinated" if share > 0.4 else "faithful" for id, share in shares.items()}
    write_jsonl(path, ({"id": id, "label": labels[id], "score": share} for id, share in shares.items()))
    return path


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return score_all(tmp_path_factory.mktemp("predictions") / "all.jsonl", ONLY)


def run(path: Path, predictions: Path, *overrides: str) -> dict:
    options = ["benchmark=domains", ONLY, "benchmark.encoder=null", f"predictions={predictions}", f"run_dir={path}"]
    evaluate_here(*options, *overrides)
    return json.loads((path / "metrics.json").read_text())


def test_every_domain_has_metrics_and_baselines_of_other_domains(
    predictions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(tmp_path / "run", predictions)
    metrics, facts = found["metrics"], found["meta"]["test_sets"]
    for name in ("xsum", "snli", "conjnli", "mean"):
        for metric in ("auroc", "macro_f1", "average_precision", "ece", "regression_auroc", "difference/length_auroc"):
            value = metrics[f"test/domains/{name}/{metric}"]
            assert value["low"] <= value["value"] <= value["high"]
    # The model is word overlap itself, and one feature's regression changes no order.
    assert metrics["test/domains/snli/difference/overlap_auroc"]["value"] == pytest.approx(0, abs=1e-9)
    for name in ("xsum", "snli", "conjnli"):
        assert name not in facts[name]["baselines"]["regression"]["trained_on"]
    assert "test/domains/snli/without_knowledge/length_auroc" in metrics
    assert found["meta"]["part"] == DEV
    assert count_test_accesses()["xsum"] == found["meta"]["test_accesses"]["xsum"]["held"]
    shown = capsys.readouterr().out
    report, page = (tmp_path / "run" / "report.md").read_text(), tmp_path / "run" / "answers.html"
    assert shown.count("AUROC in percent") == 1 and "best baseline" in shown and "test accesses so far" in shown
    assert "prediction without the knowledge" in report and "test accesses so far" in report
    assert shown.splitlines()[-1] == f"answers: {page.as_uri()}"
    assert all(len(line) <= 80 for line in shown.splitlines() if "|" in line)
    sets = re.search(r'id="sets">(.*?)</script>', page.read_text(), re.DOTALL)
    assert sets and [one["name"] for one in json.loads(sets.group(1))] == ["xsum", "snli", "conjnli"]
    again = run(tmp_path / "again", tmp_path / "run" / "predictions" / "domains.jsonl", SETS)["metrics"]
    for metric in ("auroc", "macro_f1", "accuracy_at_50"):
        name = f"test/domains/snli/{metric}"
        assert again[name]["value"] == metrics[name]["value"], "the written predictions give the same figures"


@pytest.mark.parametrize(("part", "corpora"), [(DEV, "files"), (HELD, "files"), (HELD, "embedded")])
def test_accesses_to_held_out_rows_of_files_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, corpora: str
) -> None:
    path = corpora if corpora == "embedded" else str(write_corpora(tmp_path / corpora))
    options = (f"benchmark.path={path}", SETS)
    given, before = score_all(tmp_path / "all.jsonl", *options), count_test_accesses()
    found = run(tmp_path / "run", given, f"benchmark.part={part}", *options)
    since, is_counted = count_test_accesses(), part == HELD and corpora == "files"
    assert since["snli"] == before["snli"] + is_counted == found["meta"]["test_accesses"]["snli"]["held"]
    assert since["xsum"] == before["xsum"]
    assert ("a test access, counted" in capsys.readouterr().out) == is_counted


def test_a_domain_can_have_another_nli_model() -> None:
    block = plain_config("evaluate", "benchmark=domains", "benchmark.nli=usual", "benchmark.domains.snli.nli=other")
    assert {name: one.nli for name, one in read_domains(block["benchmark"]["domains"], None).items() if one.nli} == {
        "snli": "other"
    }
