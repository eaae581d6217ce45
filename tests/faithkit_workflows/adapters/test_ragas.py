"""The metric in both interfaces of ragas."""

import asyncio
from typing import Any

import pytest

from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("ragas", reason="needs make adapters TOOL=ragas")
from ragas import EvaluationDataset, evaluate

from faithkit_workflows.adapters.ragas import FaithfulnessMetric


def rows(*answers: str) -> list[dict[str, Any]]:
    return [{"user_input": QUESTION, "response": answer, "retrieved_contexts": PASSAGES} for answer in answers]


def test_an_evaluation_has_the_scores_of_the_batch() -> None:
    metric, samples = FaithfulnessMetric(), rows(SUPPORTED, UNSUPPORTED)
    batch = metric.batch_score(samples)
    assert batch[0].value > 0.5 > batch[1].value and "hallucinated" in batch[1].reason
    done = evaluate(EvaluationDataset.from_list(samples), metrics=[metric], show_progress=False)
    assert done["faithkit"] == pytest.approx([one.value for one in batch], abs=1e-5)
    assert asyncio.run(metric.abatch_score(samples))[1].value == batch[1].value
    assert metric.score(**samples[0]).value == pytest.approx(batch[0].value, abs=1e-5)


def test_a_threshold_makes_scores_one_and_zero() -> None:
    assert [one.value for one in FaithfulnessMetric(threshold=0.5).batch_score(rows(SUPPORTED, UNSUPPORTED))] == [1, 0]


def test_the_example_of_the_page_runs() -> None:
    (result,) = run_example("ragas", question=QUESTION, answer=SUPPORTED, passages=PASSAGES)["results"]
    assert result.value > 0.5
