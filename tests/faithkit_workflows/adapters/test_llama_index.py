"""The evaluator in LlamaIndex, of texts and of a response with its nodes."""

import asyncio

import pytest

from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("llama_index", reason="needs make adapters TOOL=llama_index")
from llama_index.core import Response
from llama_index.core.evaluation import BatchEvalRunner
from llama_index.core.schema import NodeWithScore, TextNode

from faithkit_workflows.adapters.llama_index import FaithfulnessEvaluator


def test_a_response_passes_by_its_source_nodes() -> None:
    evaluator = FaithfulnessEvaluator()
    nodes = [NodeWithScore(node=TextNode(text=passage)) for passage in PASSAGES]
    runner = BatchEvalRunner({"faithful": evaluator})
    answers = [Response(answer, source_nodes=nodes) for answer in (SUPPORTED, UNSUPPORTED)]
    done = asyncio.run(runner.aevaluate_responses(queries=[QUESTION] * 2, responses=answers))["faithful"]
    assert [one.passing for one in done] == [True, False] and done[0].score > 0.5 > done[1].score
    assert "not supported" in done[1].feedback and done[1].contexts == PASSAGES
    assert FaithfulnessEvaluator(threshold=1).evaluate(QUESTION, UNSUPPORTED, PASSAGES).passing


def test_the_example_of_the_page_runs() -> None:
    response = Response(SUPPORTED, source_nodes=[NodeWithScore(node=TextNode(text=PASSAGES[0]))])
    assert run_example("llama_index", question=QUESTION, response=response)["result"].passing
