"""Answers of any tool are judged alike: 1 is faithful, and what cannot be judged is refused before any work."""

import copy
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from faithkit import Judge, check
from faithkit.errors import UserError
from faithkit.packages import TOOLS
from faithkit_workflows.adapters.scorer import FaithfulnessScorer, describe, stored_threshold, to_score
from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED
from tests.judge.engines import SetEngine
from tests.running import ROOT

SAME = ("deepeval", "haystack", "inspect_ai", "llama_index", "mlflow", "ragas")
MODULES = {**dict(zip(SAME, SAME, strict=True)), "inspect_logs": "inspect_ai", "langchain": "langchain_core"}


@pytest.fixture(scope="module")
def scorer() -> FaithfulnessScorer:
    return FaithfulnessScorer()


def test_a_score_is_the_probability_of_faithful_and_a_batch_gives_what_single_calls_give(scorer) -> None:
    answers = [SUPPORTED, UNSUPPORTED, SUPPORTED]
    questions = [QUESTION, QUESTION, None]
    verdicts = scorer.score(answers, [PASSAGES] * 3, questions)
    for verdict, answer, question in zip(verdicts, answers, questions, strict=True):
        alone = scorer.score_one(answer, PASSAGES, question)
        assert alone.label == verdict.label and alone.score == pytest.approx(verdict.score, abs=1e-5)
        assert to_score(verdict) == pytest.approx(1 - check(PASSAGES, answer, question).score, abs=1e-5)
    assert [verdict.label for verdict in verdicts] == ["faithful", "hallucinated", "faithful"]
    assert scorer.score([], [], []) == []


def test_each_mark_has_its_evidence_in_the_passages_and_in_the_line_of_its_description(scorer) -> None:
    found = scorer.score_one(UNSUPPORTED, PASSAGES)
    for span in found.spans:
        assert span.text == UNSUPPORTED[span.start : span.end] and span.evidence is not None
        place = slice(span.evidence.start, span.evidence.end)
        assert PASSAGES[span.evidence.passage][place] == span.evidence.text
        assert span.text in describe(found) and span.evidence.reason in describe(found)
    assert found.spans


def test_the_documents_of_a_tool_are_read_as_texts_are(scorer: FaithfulnessScorer) -> None:
    (plain,) = scorer.score([UNSUPPORTED], [PASSAGES], [QUESTION])
    for name in ("text", "page_content", "content"):
        documents = [SimpleNamespace(**{name: passage}) for passage in PASSAGES]
        assert scorer.score_one(UNSUPPORTED, documents, QUESTION) == plain
    assert scorer.score_one(SUPPORTED, PASSAGES[0]) == scorer.score_one(SUPPORTED, PASSAGES[:1])


def test_a_threshold_changes_the_label_alone(scorer: FaithfulnessScorer) -> None:
    own = scorer.score_one(UNSUPPORTED, PASSAGES)
    patient = FaithfulnessScorer(threshold=1).score_one(UNSUPPORTED, PASSAGES)
    assert (own.label, patient.label) == ("hallucinated", "faithful") and own.score == pytest.approx(patient.score)
    assert patient.spans == ()
    assert 0 < (stored_threshold("default") or 0) < 1
    assert copy.deepcopy(scorer).score_one(UNSUPPORTED, PASSAGES) == own  # trainers copy rewards


def test_a_judge_without_a_probability_counts_by_its_label_and_an_unreadable_reply_has_no_score() -> None:
    weighed = Judge(SetEngine(weighs=lambda prompt: {"Yes": 0.9, "No": 0.1})).judge(PASSAGES, UNSUPPORTED)
    assert to_score(weighed) == pytest.approx(0.1)
    silent = Judge(SetEngine(problem=lambda prompt: "down")).judge(PASSAGES, UNSUPPORTED)
    assert to_score(silent) is None and describe(silent) == "unparsed"


NO_ANSWERS: list[Any] = ["", " \n", None, {"text": "a"}]
NO_CONTEXTS: list[Any] = [None, [], ["a", 3]]


@pytest.mark.parametrize(
    ("answer", "context"), [*((one, PASSAGES) for one in NO_ANSWERS), *((SUPPORTED, one) for one in NO_CONTEXTS)]
)
def test_what_is_no_text_is_refused(answer: Any, context: Any, scorer: FaithfulnessScorer) -> None:
    with pytest.raises(UserError) as error:
        scorer.score([SUPPORTED, answer], [PASSAGES, context], [None, None])
    assert f"the {'context' if answer is SUPPORTED else 'answer'} must be" in str(error.value)
    assert "item 1" in str(error.value)


def test_a_wrong_setting_is_refused_at_construction() -> None:
    wrong: dict[str, tuple[Any, ...]] = {"no such run": ("/nowhere",), "must be a text": (None,)}
    wrong["must be a probability"] = ("default", 2)
    for words, arguments in wrong.items():
        with pytest.raises(UserError, match=words):
            FaithfulnessScorer(*arguments)


@pytest.mark.parametrize(("module", "package"), MODULES.items())
def test_a_missing_tool_is_named_with_its_command(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"faithkit_workflows.adapters.{module}"
    for loaded in [package, name, *(loaded for loaded in sys.modules if loaded.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError) as raised:
        import_module(name)
    assert package in raised.value.problem and raised.value.hint == f"pip install {TOOLS[package]}"


def test_without_any_tool_the_others_load() -> None:
    code = "import faithkit_workflows.adapters.trl, faithkit_workflows.adapters.lm_eval.tasks"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
