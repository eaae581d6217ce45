"""The guard in a chain, and the evaluator in LangSmith's evaluation of one."""

import asyncio
import uuid
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("langchain_core", reason="needs make adapters TOOL=langchain_core")
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langsmith import Client, evaluate
from langsmith.schemas import Example

from faithkit_workflows.adapters.langchain import FaithfulnessEvaluator, FaithfulnessGuard, UnfaithfulAnswer

DOCUMENTS = [Document(page_content=passage) for passage in PASSAGES]


def chain(guard: FaithfulnessGuard) -> Runnable[str, Any]:
    return RunnableLambda(lambda answer: {"answer": answer, "context": DOCUMENTS, "question": QUESTION}) | guard


def test_the_guard_lets_supported_answers_pass_and_replaces_others() -> None:
    guarded = chain(FaithfulnessGuard(fallback="I do not know."))
    first, second = guarded.batch([SUPPORTED, UNSUPPORTED])
    assert (first["answer"], second["answer"]) == (SUPPORTED, "I do not know.")
    assert first["faithfulness"]["score"] > 0.5 > second["faithfulness"]["score"]
    message = AIMessage(SUPPORTED)
    assert asyncio.run(guarded.ainvoke(message))["answer"] is message


def test_the_guard_without_a_fallback_raises() -> None:
    with pytest.raises(UnfaithfulAnswer, match="not supported: "):
        chain(FaithfulnessGuard()).invoke(UNSUPPORTED)
    first, second, empty = chain(FaithfulnessGuard()).batch([SUPPORTED, UNSUPPORTED, ""], return_exceptions=True)
    assert first["answer"] == SUPPORTED and isinstance(second, UnfaithfulAnswer) and isinstance(empty, UserError)
    assert chain(FaithfulnessGuard(threshold=1)).invoke(UNSUPPORTED)["answer"] == UNSUPPORTED


def test_an_evaluation_of_langsmith_has_the_score() -> None:
    ids = {"id": uuid.uuid4(), "dataset_id": uuid.uuid4()}
    example = Example(inputs={"question": QUESTION, "context": PASSAGES}, outputs={}, **ids)
    client = Client(api_url="http://localhost:1", api_key="none", info={}, auto_batch_tracing=False)
    options: dict[str, Any] = {"client": client, "upload_results": False}
    for answer, label in ((SUPPORTED, "faithful"), (UNSUPPORTED, "hallucinated")):
        evaluators = [FaithfulnessEvaluator()]
        done = evaluate(lambda inputs, a=answer: {"answer": a}, data=[example], evaluators=evaluators, **options)
        (row,) = done
        (result,) = row["evaluation_results"]["results"]
        assert result.key == "faithfulness" and result.value == label
        assert (result.score > 0.5) == (label == "faithful")


def test_other_names_are_set_by_keys() -> None:
    row = {"output": SUPPORTED, "docs": PASSAGES}
    assert FaithfulnessGuard(keys=("output", "docs", "q")).invoke(row)["output"] == SUPPORTED
    with pytest.raises(UserError, match=r"no 'answer' among output, docs(.|\n)*keys="):
        FaithfulnessGuard().invoke(row)


def test_the_example_of_the_page_runs() -> None:
    steps = RunnableLambda(lambda question: {"answer": UNSUPPORTED, "context": DOCUMENTS, "question": question})
    assert run_example("langchain", chain=steps, question=QUESTION)["reply"] == "I do not know."
