"""The component in a pipeline of Haystack that is saved and loaded."""

from typing import Any

import pytest

from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("haystack", reason="needs make adapters TOOL=haystack")
from haystack import Pipeline

from faithkit_workflows.adapters.haystack import FaithfulnessEvaluator


def run(pipeline: Pipeline, answers: list[str], **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = pipeline.run({"f": {"contexts": [PASSAGES] * 2, "predicted_answers": answers, **others}})
    return found["f"]


def test_a_saved_pipeline_scores_answers() -> None:
    pipeline = Pipeline()
    pipeline.add_component("f", FaithfulnessEvaluator(threshold=0.5))
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=[FaithfulnessEvaluator.__module__])
    found = run(loaded, [SUPPORTED, UNSUPPORTED], questions=[QUESTION] * 2)
    first, second = found["individual_scores"]
    assert first > 0.5 > second and found["score"] == pytest.approx((first + second) / 2)
    assert [one["label"] for one in found["results"]] == ["faithful", "hallucinated"]
    assert run(pipeline, [SUPPORTED, UNSUPPORTED])["results"][1]["spans"][0]["evidence"]["reason"]


def test_the_example_of_the_page_runs() -> None:
    assert "faithfulness" in run_example("haystack", pipeline=Pipeline())["pipeline"].to_dict()["components"]
