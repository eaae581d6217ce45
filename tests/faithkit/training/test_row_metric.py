"""Validation metrics: each row once, whatever the batches and processes, equal to our own functions."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryF1Score

from critic.sequence.module import validation_metrics as critic_metrics
from critic.tagger.module import validation_metrics as tagger_metrics
from faithkit.reports.perplexity_report import language_model_statistic
from faithkit.statistics.bootstrap import Groups
from faithkit.training.language_model import language_model_figures as generator_figures
from faithkit.training.module import RowMetric
from tests.running import ROOT

RNG = np.random.default_rng(4)
LOGITS = RNG.normal(size=(40, 2)).round(1).astype(np.float32)  # rounded, so that scores tie
LABELS = RNG.integers(-1, 2, 40)
VALUES = np.column_stack([LOGITS, LABELS.astype(np.float32)])
COUNTED = VALUES[LABELS >= 0].astype(np.float64)


def filled(metric: RowMetric, values: np.ndarray, order: np.ndarray) -> RowMetric:
    """The metric, shown the rows in this order in batches of seven, with a row of padding in each."""
    for begin in range(0, len(order), 7):
        rows = order[begin : begin + 7]
        numbers = torch.from_numpy(np.append(rows, -1))
        metric.update(numbers, torch.from_numpy(values[np.append(rows, 0)]))
    return metric


def test_the_critics_figures_are_those_of_its_labelled_rows_in_any_order() -> None:
    wanted = critic_metrics(np.arange(len(COUNTED)), COUNTED)
    assert filled(RowMetric(critic_metrics), VALUES, RNG.permutation(40)).compute() == wanted


def test_a_row_that_comes_twice_counts_once() -> None:
    metric = filled(RowMetric(critic_metrics), VALUES, np.arange(40))
    once = metric.compute()
    assert filled(metric, VALUES, np.arange(5)).compute() == once
    metric.reset()
    assert filled(metric, VALUES, np.arange(20)).compute() != once, "a validation begins with no rows"


def test_torchmetrics_agrees_to_fp32() -> None:
    counted = LABELS >= 0
    probability = torch.from_numpy(LOGITS[counted]).softmax(1)[:, 1]
    gold = torch.from_numpy(LABELS[counted])
    ours = critic_metrics(np.arange(len(COUNTED)), COUNTED)
    for name, theirs in (("f1", BinaryF1Score()), ("accuracy", BinaryAccuracy()), ("auroc", BinaryAUROC())):
        assert ours[name] == pytest.approx(float(theirs(probability, gold)), abs=1e-6), name


def test_the_taggers_figures_are_those_of_all_tokens() -> None:
    answers = np.sort(RNG.integers(0, 9, 40))
    place = np.arange(40) - np.searchsorted(answers, answers)
    odds, tags, characters = RNG.normal(size=40).round(1), RNG.integers(-1, 3, 40), RNG.integers(1, 9, 40)
    columns = np.column_stack([odds, tags, characters]).astype(np.float32)
    metric = RowMetric(tagger_metrics)
    order = RNG.permutation(40)
    metric.update(torch.from_numpy(np.stack([answers[order], place[order]], axis=1)), torch.from_numpy(columns[order]))
    assert metric.compute() == tagger_metrics(np.stack([answers, place], axis=1), columns.astype(np.float64))


def test_the_generators_figures_are_those_of_all_rows() -> None:
    rows = np.column_stack([RNG.gamma(9, size=40), RNG.integers(3, 9, 40), RNG.integers(0, 3, 40)])
    groups = Groups.of(map(str, range(40)))
    wanted = {name: float(v) for name, [v] in language_model_statistic(groups, rows)(np.ones((1, 40))).items()}
    assert filled(RowMetric(generator_figures), rows, RNG.permutation(40)).compute() == wanted


TWO = """
import sys, numpy as np, torch, torch.distributed as dist
import torch.multiprocessing as mp
from faithkit.training.module import RowMetric

def figures(numbers, values):
    return {"rows": float(len(numbers)), "ordered": float((values[:, 0] == numbers * 3).all())}

def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for first, count in (([5, 3, 1], 6.0), ([-1], 3.0)):  # uneven shares, and one of padding alone
        metric = RowMetric(figures)
        for rows in ([4, 2], [0, -1]) if rank else (first,):
            numbers = torch.tensor(rows)
            metric.update(numbers, (numbers * 3).double()[:, None])
        found = metric.compute()
        assert found == {"rows": count, "ordered": 1.0}, found

if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")  # torch is imported once
"""


@pytest.mark.slow
def test_two_processes_see_each_row_once(tmp_path: object) -> None:
    script = tmp_path / "two.py"  # type: ignore[operator]
    script.write_text(TWO)
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "store")]  # type: ignore[operator]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
