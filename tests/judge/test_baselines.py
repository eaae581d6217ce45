"""Baselines: SelfCheckGPT's measures by values worked out by hand, and an examiner that questions another model."""

from collections.abc import Sequence
from functools import partial
from math import exp, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL
from faithkit.errors import UserError
from faithkit.inference.prompts import read_text_prompt
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Turn
from judge.baselines import (
    Checked,
    Examiner,
    SelfCheck,
    bert_scores,
    draw_samples,
    ngram_scores,
    nli_scores,
    other_responses,
    prompted_scores,
)
from judge.options import ExaminerOptions
from tests.data_modules.examples import example
from tests.judge.engines import SetEngine


def alike(values: dict[tuple[str, str], float]) -> Any:
    """A similarity that a test sets."""
    score = lambda *texts: np.array([values[pair] for pair in zip(*texts, strict=True)])  # noqa: E731
    return SimpleNamespace(score=score)


def entails(values: dict[tuple[str, str], tuple[float, float, float]]) -> Any:
    """Probabilities of entailment, neutral and contradiction that a test sets."""

    def entailment(premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        found = np.zeros((len(premises), 3))
        for place, pair in enumerate(zip(premises, hypotheses, strict=True)):
            found[place, [ENTAILMENT, NEUTRAL, CONTRADICTION]] = values[pair]
        return found

    return SimpleNamespace(entailment=entailment)


def test_bert_score_takes_the_best_sentence_of_each_sample() -> None:
    values = {("It is red.", "It is blue."): 0.2, ("It is red.", "It is dark red."): 0.8, ("It is red.", "No."): 0.4}
    [[score]] = bert_scores([Checked(["It is red."], ["It is blue. It is dark red.", "No."])], alike(values))
    assert score == pytest.approx(1 - (0.8 + 0.4) / 2)


def test_entailment_takes_the_sentence_as_premise_and_leaves_neutral_out_unless_it_is_the_only_other_class() -> None:
    values = {("It is red.", "one"): (0.1, 0.6, 0.3), ("It is red.", "two"): (0.4, 0.2, 0.4)}
    [[score]] = nli_scores([Checked(["It is red."], ["one", "two"])], entails(values))
    assert score == pytest.approx((0.3 / 0.4 + 0.4 / 0.8) / 2)
    of_critic = entails({("It is red.", "one"): (0.25, 0.75, 0.0)})
    assert nli_scores([Checked(["It is red."], ["one"])], of_critic) == [[pytest.approx(0.75)]]


def test_words_are_counted_in_the_response_and_all_samples() -> None:
    # a b . | a b . | a c . : of 9 tokens a and the full stop have 3, b has 2, c has 1.
    checked = [Checked(["a b."], ["a b.", "a c."])]
    mean = (2 * log(9 / 3) + log(9 / 2)) / 3
    assert ngram_scores(checked) == [[pytest.approx(mean)]]
    assert ngram_scores(checked, unlikeliest=True) == [[pytest.approx(log(9 / 2))]]
    # Of pairs: a begins all three sentences; b follows a in two of three; the full stop follows b always.
    assert ngram_scores(checked, order=2) == [[pytest.approx((log(1) + log(3 / 2) + log(1)) / 3)]]


def test_a_model_is_asked_whether_each_sample_supports_a_sentence() -> None:
    replies = {"one": "Yes, it does.", "two": "No.", "three": "Nobel"}
    engine = SetEngine(says=lambda prompt: [next(said for word, said in replies.items() if f"\n{word}\n" in prompt)])
    prompt = read_text_prompt("judge", "support", "context", "sentence")
    checked = [Checked(["It is red.", "It is old."], ["one", "two", "three"])]
    [[first, second]] = prompted_scores(checked, engine, prompt)
    assert first == second == pytest.approx((0.0 + 1.0 + 0.5) / 3) and len(engine.asked) == 6
    failing = SetEngine(problem=lambda prompt: "too long")
    assert prompted_scores([Checked(["a"], ["one"])], failing, prompt) == [[0.5]]


def test_a_response_has_the_mean_of_its_sentences_and_marks_those_above_the_threshold() -> None:
    values = {("It is red.", "red"): (0.9, 0.0, 0.1), ("It is old.", "red"): (0.1, 0.0, 0.9)}
    engine = SetEngine(says=lambda prompt: ["red"])
    prompt = read_text_prompt("judge", "reply", "knowledge", "history")
    drawn = partial(draw_samples, engine=engine, prompt=prompt, num_samples=1)
    rows = [
        example(id="both", response="It is red. It is old."),
        example(id="red", response="It is red."),
        example(id="bare", knowledge="", response="It is red."),
    ]
    both, red, bare = SelfCheck(partial(nli_scores, model=entails(values)), drawn).predict_examples(rows)
    assert (both.label, both.score) == (HALLUCINATED, pytest.approx(0.5))
    assert [rows[0].response[span.start : span.end] for span in both.spans] == ["It is old."]
    assert (red.label, red.score, red.spans) == (FAITHFUL, pytest.approx(0.1), ())
    assert (bare.label, bare.score) == (UNPARSED, None) and "no samples" in bare.text
    assert len(engine.asked) == 1, "responses to one prompt share their samples"


def of_model(model: str, group: str, response: str) -> Any:
    return example(source="ragtruth", group=group, meta={"model": model}, response=response)


def test_the_other_models_responses_to_the_same_source_are_samples() -> None:
    rows = [of_model("a", "s", "one"), of_model("b", "s", "two"), of_model("a", "t", "three")]
    assert other_responses(rows)(rows) == [["two"], ["one"], []]
    with pytest.raises(UserError, match="do not name the models"):
        other_responses([example()])
    rows = [of_model("a", "g", "red"), of_model("b", "g", "red"), of_model("c", "g", "blue")]
    found = list(SelfCheck(ngram_scores, other_responses(rows), 0.6, unbounded=True).predict_examples(rows))
    assert [one.score for one in found] == pytest.approx([1 - exp(-log(3 / 2))] * 2 + [1 - exp(-log(3))]), "a share"
    assert [one.label for one in found] == [FAITHFUL, FAITHFUL, HALLUCINATED]


def test_samples_are_drawn_for_what_the_responder_had_or_rephrased_at_each_temperature() -> None:
    engine = SetEngine(says=lambda prompt: ["one", " ", "three"])
    prompt = read_text_prompt("judge", "reply", "knowledge", "history")
    history = (Turn(speaker="seeker", text="Is it long?"),)
    rows = [example(history=history), example(knowledge="", history=history)]
    assert draw_samples(rows, engine, prompt, num_samples=3) == [["one", "three"]] * 2
    assert all("It is long." not in asked for asked in engine.asked), "the response is not shown"
    assert sum("The river is long." in asked for asked in engine.asked) == 1
    dialogue, engine = "A1: How long is it?\nB1: It is long.", SetEngine(says=lambda prompt: ["one", "two"])
    prompt = read_text_prompt("judge", "rephrase", "response")
    rows = [example(knowledge="", response=dialogue), example(knowledge="", response=" ")]
    found = draw_samples(rows, engine, prompt, num_samples=2, temperatures=(0.5, 1.0))
    assert found == [["one", "two"] * 2, []]
    assert len(engine.asked) == 2 and all(dialogue in asked for asked in engine.asked)


KNOWLEDGE = "The Danube flows through ten countries."
ROWS = [example(id="twelve", knowledge=KNOWLEDGE, response="It has twelve."), example(id="ten", response="It has ten.")]


def examined(examiner: SetEngine, examinee: SetEngine, **options: int) -> Examiner:
    return Examiner(examiner, examinee, ExaminerOptions(**{"turns": 2, **options}))  # type: ignore[arg-type]


def test_questions_are_answered_without_the_response_and_the_answers_decide() -> None:
    def asks(prompt: str) -> Sequence[str]:
        return ["1. How long is it?"] if "How many?" in prompt else ["How many?\nPlease tell.\nHow many?"]

    examiner = SetEngine(
        says=asks, weighs=lambda prompt: {"Yes": 0.9, "No": 0.1} if "twelve" in prompt else {"Yes": 0.2, "No": 0.8}
    )
    examinee = SetEngine(says=lambda prompt: ["Ten countries."] if "How many?" in prompt else ["2,850 km."])
    found = list(examined(examiner, examinee).predict_examples(ROWS))
    assert [(one.id, one.label, one.score) for one in found] == [
        ("twelve", HALLUCINATED, pytest.approx(0.9)),
        ("ten", FAITHFUL, pytest.approx(0.2)),
    ]
    assert found[0].text == "How many?\n\nTen countries.\n\nHow long is it?\n\n2,850 km."
    assert len(examinee.asked) == 4 and not any("It has" in prompt for prompt in examinee.asked)
    assert any(KNOWLEDGE in prompt for prompt in examinee.asked)
    assert not any(KNOWLEDGE in prompt for prompt in examiner.asked), "the examiner hears it from the other"


def test_who_has_no_more_questions_decides_at_once() -> None:
    examiner = SetEngine(
        says=lambda prompt: ["I know enough."] if "twelve" in prompt else ["Is it?\nWhere?\nWhen?"],
        weighs=lambda prompt: {"Yes": 0.6, "No": 0.4},
    )
    examinee = SetEngine(says=lambda prompt: ["So."])
    examiner_of_rows = examined(examiner, examinee, num_questions=2)
    found = list(examiner_of_rows.predict_examples(ROWS))
    assert [one.text for one in found] == ["", "Is it?\n\nWhere?\n\nSo.\n\nWhen?\n\nSo."]
    assert examiner_of_rows.num_unasked == 1
    assert [prompt.count("?") for prompt in examinee.asked] == [2, 1], "two a turn, and nothing twice"


def test_a_request_that_fails_costs_its_row_alone() -> None:
    examiner = SetEngine(
        says=lambda prompt: ["Is it?"],
        weighs=lambda prompt: {"Yes": 0.6, "No": 0.4},
        problem=lambda prompt: "too long" if "twelve" in prompt else "",
    )
    found = list(examined(examiner, SetEngine(problem=lambda prompt: "lost")).predict_examples(ROWS))
    assert [(one.label, one.text) for one in found] == [(UNPARSED, "too long"), (HALLUCINATED, "Is it?\n\n(no answer)")]
