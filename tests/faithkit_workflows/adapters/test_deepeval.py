"""The metric in DeepEval's own evaluation."""

import pytest

from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("deepeval", reason="needs make adapters TOOL=deepeval")
from deepeval import assert_test, evaluate
from deepeval.evaluate.configs import AsyncConfig, DisplayConfig
from deepeval.test_case import LLMTestCase

from faithkit_workflows.adapters.deepeval import FaithfulnessMetric


def case(answer: str, passages: list[str] | None = PASSAGES) -> LLMTestCase:
    return LLMTestCase(input=QUESTION, actual_output=answer, retrieval_context=passages)


@pytest.mark.parametrize("run_async", [True, False])
def test_an_evaluation_passes_what_is_supported(run_async: bool) -> None:
    quiet = DisplayConfig(show_indicator=False, print_results=False)
    cases, metric = [case(SUPPORTED), case(UNSUPPORTED)], FaithfulnessMetric()
    done = evaluate(cases, [metric], display_config=quiet, async_config=AsyncConfig(run_async=run_async))
    found = {one.actual_output: one.metrics_data[0] for one in done.test_results}
    assert found[SUPPORTED].success and found[SUPPORTED].score > 0.5
    assert not found[UNSUPPORTED].success and "hallucinated" in found[UNSUPPORTED].reason
    assert found[UNSUPPORTED].score < found[UNSUPPORTED].threshold == metric.threshold


def test_the_threshold_is_the_lowest_score_that_passes() -> None:
    assert_test(case(UNSUPPORTED), [FaithfulnessMetric(threshold=0.0)], run_async=False)
    with pytest.raises(AssertionError, match="Faithfulness"):
        assert_test(case(SUPPORTED), [FaithfulnessMetric(threshold=1.0)], run_async=False)


def test_the_example_of_the_page_runs() -> None:
    run_example("deepeval", question=QUESTION, answer=SUPPORTED, passages=PASSAGES)
