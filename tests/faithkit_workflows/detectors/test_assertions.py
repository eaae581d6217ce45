"""A user's test fails where an answer is not held by its source, and says which part and why."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import Critic, Judge, Tagger, assert_faithful
from faithkit.errors import UserError
from faithkit_workflows.detectors import assertions
from tests.judge.engines import SetEngine
from tests.running import ROOT

KNOWN = "The Danube flows through ten countries."
SAID = "It flows through twelve."


@pytest.fixture(scope="module")
def critic(trained: Path) -> Critic:
    return Critic.load(trained)


def test_a_response_passes_or_fails_by_the_detectors_own_verdict(critic: Critic) -> None:
    verdict = critic.score(KNOWN, SAID)
    high, low = verdict.probability + 1e-3, verdict.probability - 1e-3
    assert_faithful(KNOWN, SAID, by=critic, threshold=high)
    with pytest.raises(AssertionError, match=rf"1 of 1 .* threshold=(.|\n)*{verdict.probability:.3f}(.|\n)*twelve"):
        assert_faithful(KNOWN, SAID, by=critic, threshold=low)
    assert_faithful(KNOWN, SAID, by=judge(lambda prompt: 0.1))
    with pytest.raises(AssertionError, match=r"P\(hallucinated\) 0\.900"):
        assert_faithful(KNOWN, SAID, by=judge(lambda prompt: 0.9))


def judge(weighs: Callable[[str], float]) -> Judge:
    """A judge whose probability of Yes is a function of the prompt."""
    return Judge(SetEngine(weighs=lambda prompt: {"Yes": weighs(prompt), "No": 1 - weighs(prompt)}))


def test_of_a_list_the_failing_ones_are_told_by_their_number() -> None:
    answers = [SAID, "It is long.", "It flows through twelve or more."]
    with pytest.raises(AssertionError) as failure:
        assert_faithful([KNOWN] * 3, iter(answers), by=judge(lambda prompt: 0.9 if "twelve" in prompt else 0.2))
    told = str(failure.value)
    assert told.startswith("2 of 3 ") and "long" not in told
    assert f"1. hallucinated, P(hallucinated) 0.900\n   response:  {SAID}" in told
    assert f"3. hallucinated, P(hallucinated) 0.900\n   response:  {answers[2]}" in told


def test_a_path_is_loaded_once_and_passages_are_read_as_the_detector_reads_them(trained_tagger: Path) -> None:
    assertions._load.cache_clear()
    passages = ["The Danube is long.", KNOWN]
    tagged = Tagger.load(trained_tagger).predict(passages, SAID)
    for _ in range(2):
        with pytest.raises(AssertionError, match=f"P\\(hallucinated\\) {tagged.score:.3f}") as failure:
            assert_faithful(passages, SAID, by=trained_tagger, threshold=0.0)
    assert " | ".join(passages) in str(failure.value)
    assert assertions._load.cache_info().misses == 1


def test_what_a_tagger_marks_stands_in_brackets(trained_tagger: Path) -> None:
    tagger = Tagger.load(trained_tagger)
    tagger.calibration = replace(tagger.calibration, char_threshold=0.0)  # it marks everything
    with pytest.raises(AssertionError, match=r"response:  \[\[It flows through twelve\.\|.*\]\]"):
        assert_faithful(KNOWN, SAID, by=tagger, threshold=0.0)


def test_a_reply_that_cannot_be_read_fails() -> None:
    silent = Judge(SetEngine(problem=lambda prompt: "the server is \x1b[31mdown"))
    with pytest.raises(AssertionError, match=r"unparsed, no probability(.|\n)*the server is \\x1b\[31mdown"):
        assert_faithful(None, SAID, by=silent, threshold=0.99)


@given(st.text(min_size=1).filter(lambda text: not text.isspace()))
def test_no_text_steers_the_terminal(text: str) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_faithful(text, text, by=judge(lambda prompt: 0.9))
    assert len(str(failure.value).splitlines()) == 4
    assert "\x1b" not in str(failure.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"by": 3}, ["by must be a critic, a tagger or a judge", "by=Critic.load"]),
        ({"by": "/nowhere"}, ["no such run", "/nowhere"]),
        ({"by": "", "threshold": 0.5}, ["by must be"]),
        ({"threshold": 2}, ["threshold must be"]),
        ({"response": []}, ["no response", "give at least one"]),
        ({"response": ["a", "b"]}, ["knowledge must be a list"]),
        ({"respons": "a"}, ["did you mean response"]),
    ],
)
def test_a_wrong_call_is_explained(arguments: dict[str, object], words: list[str], critic: Critic) -> None:
    given = {"knowledge": KNOWN, "response": SAID, "by": critic, **arguments}
    with pytest.raises(UserError) as error:
        assert_faithful(**given)  # type: ignore[arg-type]
    for word in words:
        assert word in str(error.value)


def test_the_name_is_there_without_torch() -> None:
    code = "import sys, faithkit; assert 'assert_faithful' in dir(faithkit); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"
