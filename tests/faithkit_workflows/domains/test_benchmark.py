"""`evaluate.py benchmark=domains` on embedded corpora, and its report: metrics, means, paired differences."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from faithkit.baselines.simple_detectors import Baseline
from faithkit.baselines.word_features import unsupported_share
from faithkit.files.jsonl import write_jsonl
from faithkit.metrics.classification import Outcomes, classification_statistic
from faithkit.pages.page_tables import render_text
from faithkit.records import FAITHFUL, HALLUCINATED, Prediction
from faithkit.statistics.bootstrap import Groups, Resamples
from faithkit_workflows.domains.benchmark import (
    DomainTest,
    average_domains,
    count_test_accesses,
    measure_coverage,
    report_domains,
)
from faithkit_workflows.domains.domain_rows import read_all_domains, read_domains
from faithkit_workflows.settings.benchmark_blocks import ALL, DEV, HELD
from tests.data_modules.examples import example
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


def test_every_domain_has_metrics_and_baselines_of_other_domains(predictions, tmp_path, capsys) -> None:
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
def test_accesses_to_held_out_rows_of_files_are_counted(tmp_path, capsys, part, corpora) -> None:
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
    found = read_domains(block["benchmark"]["domains"], None)
    assert {name: one.nli for name, one in found.items() if one.nli} == {"snli": "other"}


def domain(name: str, *, noise: float, extra: bool = False, num: int = 60) -> DomainTest:
    generator = np.random.default_rng(len(name))
    gold = generator.random(num) < 0.5
    labels = [HALLUCINATED if wrong else FAITHFUL for wrong in gold]
    examples = [example(id=f"{name}/{i}", group=f"{i // 2}", label=label) for i, label in enumerate(labels)]

    def predict(spread: float) -> dict[str, Prediction]:
        scores = 1 / (1 + np.exp(-(2.0 * gold - 1 + generator.normal(0, spread, num))))
        return {
            one.id: Prediction(id=one.id, label=HALLUCINATED if score > 0.5 else FAITHFUL, score=float(score))
            for one, score in zip(examples, scores, strict=True)
        }

    weak = Baseline(key="overlap", name="word overlap", predictions=predict(3.0), fitted_on="10 rows of others")
    given = {"examples": examples, "predictions": predict(noise), "baselines": [weak]}
    return DomainTest(name=name, title=name, extra=extra, **given)


def test_means_are_over_the_domains_that_count_and_differences_are_paired() -> None:
    tests = [domain("one", noise=0.3), domain("three", noise=0.3), domain("whole", noise=9.0, extra=True)]
    report = report_domains(tests, title="t", num_resamples=50, num_examples=2)
    metrics = report.metrics
    assert metrics["mean/auroc"].value == pytest.approx((metrics["one/auroc"].value + metrics["three/auroc"].value) / 2)
    difference = metrics["one/auroc"].value - metrics["one/overlap_auroc"].value
    assert metrics["one/difference/overlap_auroc"].value == pytest.approx(difference)
    low, high = metrics["mean/difference/overlap_auroc"].low, metrics["mean/difference/overlap_auroc"].high
    assert low is not None and high is not None and 0 < low <= metrics["mean/difference/overlap_auroc"].value <= high
    assert "whole/auroc" in metrics and any("clearly above on 2 of 2" in note for note in report.notes)
    text = render_text(*report.tables, width=120)
    assert "whole *" in text and "fitted on 10 rows of others" in text


def calibrated_outcomes(number: int, *, shift: float = 0.0, num: int = 300) -> Outcomes:
    """Draws calibrated scores, or scores with shifted log-odds."""
    generator = np.random.default_rng(number)
    chances = generator.random(num)
    gold = (generator.random(num) < chances).astype(np.int8)
    scores = 1 / (1 + np.exp(-np.log(chances / (1 - chances)) - shift))
    groups = Groups.of(map(str, range(num)))
    return Outcomes(gold=gold, called=(scores > 0.5).astype(np.int8), scores=scores, groups=groups)


def calibrated(number: int, *, shift: float = 0.0) -> Resamples:
    outcomes = calibrated_outcomes(number, shift=shift)
    return Resamples(outcomes.groups, classification_statistic(outcomes), num_resamples=400, seed=number)


def test_the_interval_of_the_mean_of_calibration_errors_does_not_lie_above_it() -> None:
    """Errors of few rows lie above the truth, which is 0 here, and those of resamples lie further above."""
    draws = [calibrated(number) for number in range(6)]
    mean, drawn = average_domains(draws, "ece"), np.mean([one.samples["ece"] for one in draws], axis=0)
    assert mean is not None and np.quantile(drawn, 0.025) > mean.value, "uncorrected, all of it lies above"
    low, high = np.quantile(drawn - 2 * (drawn.mean() - mean.value), (0.025, 0.975))  # as `bootstrap` has it
    assert mean.low == pytest.approx(low) and low < high < mean.value
    assert mean.high == mean.value, "an interval holds its value"
    few = calibrated(0)
    few.values, few.samples, few.left_out = {"ece": 0.02}, {"ece": np.linspace(0.0, 0.1, 101)}, {}
    sparse = average_domains([few], "ece")
    assert sparse is not None and sparse.low == 0, "no bound is below 0"


@pytest.mark.parametrize(
    ("gold", "scores", "expected"),
    [
        ([1, 0, 1, 0], [0.95, 0.08, 0.4, 0.7], (0.5, 0.5, 1.0, 1.0, 0.5)),  # the two most confident are right
        ([1, 0], [0.9, 0.9], (0.5, 0.5, 0.5, 0.5, 1.0)),  # rows of equal confidence are judged together
    ],
)
def test_accuracy_is_measured_over_the_most_confident_rows(gold, scores, expected) -> None:
    called = np.array([score > 0.5 for score in scores], np.int8)
    groups = Groups.of(map(str, range(len(gold))))
    outcomes = Outcomes(gold=np.array(gold, np.int8), called=called, scores=np.array(scores), groups=groups)
    metrics = measure_coverage(outcomes, num_resamples=50)
    names = ("accuracy_at_100", "accuracy_at_80", "accuracy_at_50", "accuracy_judged_at_90", "judged_at_90")
    assert tuple(metrics[name].value for name in names) == expected
