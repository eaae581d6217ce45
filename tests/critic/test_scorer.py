"""Scoring from Python: three lines, one pair or many, the same in any batch, texts of any length."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic import Critic
from critic.sequence.scorer import PAIRS_AT_ONCE, encode_ahead, window_logits
from critic.sequence.settings import Settings
from faithkit.calibration import log_odds
from faithkit.errors import UserError
from faithkit.files.model_folder import read_sidecar

TEXT = st.text(min_size=1, max_size=80).filter(lambda text: bool(text.strip()))
KNOWLEDGE = ["the river is long", "the city is old and the king lives in it " * 3, "music", "a dog and a cat " * 8]
RESPONSE = ["it is long", "the king plays music", "i love it " * 6, "dog"]


@pytest.fixture(scope="module")
def critic(trained: Path) -> Critic:
    return Critic.load(str(trained), max_windows="all")


def test_scores_are_the_same_in_any_batch_and_order(critic: Critic) -> None:
    knowledge, response = KNOWLEDGE * 5, RESPONSE * 4 + RESPONSE[::-1]
    together = critic.probabilities(knowledge, response)
    alone = [critic.score(k, r).probability for k, r in zip(knowledge, response, strict=True)]
    backwards = critic.probabilities(knowledge[::-1], response[::-1])[::-1]
    small = Critic(critic.model, critic.encoder, critic.calibration, batch_tokens=64).probabilities(knowledge, response)
    for other in (alone, backwards, small):
        np.testing.assert_allclose(other, together, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("count", [0, 1, PAIRS_AT_ONCE, 3 * PAIRS_AT_ONCE + 5])
def test_rows_are_encoded_in_order_for_every_device(device: str, count: int) -> None:
    chunks = encode_ahead(lambda rows: {"rows": range(count)[rows]}, count, torch.device(device))
    assert [row for columns in chunks for row in columns["rows"]] == list(range(count))


@given(knowledge=TEXT, response=TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_gets_a_probability(critic: Critic, knowledge: str, response: str) -> None:
    assert 0 <= critic.score(knowledge, response).probability <= 1


def test_knowledge_of_any_length_is_read_to_its_end(critic: Critic) -> None:
    long = "the river is long and the city is old " * 2500  # 95,000 characters
    assert 0 <= critic.score(long, "it is long").probability <= 1
    assert 0 <= critic.score("it is long", long).probability <= 1
    columns = critic.encoder.encode_texts([long, "music"], ["it is long", "music"])
    windows = critic.encoder.windows(columns)
    assert (windows.row == 0).sum() > 100 and (windows.row == 1).sum() == 1
    assert windows.lengths.max() <= critic.encoder.max_length
    last = windows.take(np.flatnonzero(windows.row == 0)[-1:])
    text = critic.encoder.tokenizer.decode(critic.encoder.collate_windows(columns, last)["input_ids"][0])
    assert text.count("city is old [SEP]") == 1, "the last window ends where the knowledge ends"


def test_a_response_is_as_hallucinated_as_its_best_window_leaves_it(critic: Critic) -> None:
    knowledge, response = "the king lives in the city " * 40, "the king lives"
    columns = critic.encoder.encode_texts([knowledge], [response])
    logits, _ = window_logits(critic.model, critic.encoder, columns, batch_tokens=512)
    windows = critic.calibration.scores(log_odds(logits))
    assert critic.score(knowledge, response).probability == pytest.approx(windows.min(), abs=1e-6)


def test_passages_are_joined_by_spaces_and_the_history_changes_nothing(critic: Critic) -> None:
    passages, history = ["the river is long", "the king lives"], ["who", ("user", "is it")]
    one = critic.score(knowledge=" ".join(passages), response="it is long")
    assert critic.score(passages, "it is long", history=history) == one
    many = critic.score([passages, "music"], ["it is long", "music"])
    assert many[0].probability == pytest.approx(one.probability, abs=1e-6)


def test_a_threshold_of_one_call_decides_the_label_alone(critic: Critic) -> None:
    stored = critic.score(KNOWLEDGE, RESPONSE)
    low, high = (critic.score(KNOWLEDGE, RESPONSE, threshold=t) for t in (0.0, 1.0))
    assert {s.label for s in low} == {"hallucinated"} and {s.label for s in high} == {"faithful"}
    assert [s.probability for s in low] == [s.probability for s in stored] == [s.probability for s in high]


def test_a_stream_gives_the_same_scores_and_reads_as_few_as_it_can(critic: Critic, monkeypatch: Any) -> None:
    monkeypatch.setattr("critic.sequence.scorer.PAIRS_AT_ONCE", 4)
    taken: list[int] = []

    def endless() -> Iterator[str]:
        for place in count():
            taken.append(place)
            yield KNOWLEDGE[place % 4]

    streamed = list(islice(critic.stream(endless(), cycle(RESPONSE), progress=False), 6))
    assert len(taken) == 8
    expected = (critic.score(KNOWLEDGE, RESPONSE) * 2)[:6]
    assert [(one.label, one.score) for one in streamed] == [(one.label, one.score) for one in expected]
    assert [one.id for one in streamed] == list("012345")
    assert list(critic.stream([], [], progress=False)) == []
    with pytest.raises(UserError, match="response ended before the others"):
        list(critic.stream(KNOWLEDGE, RESPONSE[:2], progress=False))


def test_int8_scores_stay_close(trained: Path, critic: Critic) -> None:
    found = Critic.load(str(trained), precision="int8").probabilities(KNOWLEDGE, RESPONSE)
    np.testing.assert_allclose(found, critic.probabilities(KNOWLEDGE, RESPONSE), atol=0.05)


def test_of_long_knowledge_the_parts_with_the_words_of_the_response_are_read(trained: Path, critic: Critic) -> None:
    few, about = Critic.load(str(trained)), "the king plays music in the city. "
    assert few.encoder.max_windows == 1 and critic.encoder.max_windows is None
    for size in (200, 20_000):
        knowledge = [*KNOWLEDGE, "a dog and a cat. " * size + about + "you and i think. " * size]
        response = [*RESPONSE, "the king plays music in the city"]
        columns = few.encoder.encode_texts(knowledge, response)
        windows = few.encoder.windows(columns)
        assert windows.row.tolist() == [0, 1, 2, 3, 4] and windows.lengths.max() <= few.encoder.max_length
        read = few.encoder.tokenizer.decode(few.encoder.collate_windows(columns, windows)["input_ids"][-1])
        assert "king plays music in the city" in read and len(read.split()) < 90
        some, every = (one.probabilities(knowledge[:4], response[:4]) for one in (few, critic))
        assert some == pytest.approx(every, abs=1e-5), "short knowledge is read whole"
        alone = few.probabilities(knowledge[4:], response[4:])[0]
        assert few.probabilities(knowledge, response)[4] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    "knowledge", ["x" * 300_000, "\n" * 100_000 + "music" + "\n" * 100_000, "!?" * 50_000, "\u4e2d\u56fd" * 50_000]
)
def test_knowledge_without_words_gets_a_probability(trained: Path, knowledge: str) -> None:
    critic = Critic.load(str(trained))
    assert 0 <= critic.score(knowledge, "the king plays music").probability <= 1
    assert critic.encoder.windows(critic.encoder.encode_texts([knowledge], ["music"])).lengths.sum() <= 96


def test_a_critic_from_before_reads_all_windows(trained: Path) -> None:
    sidecar = read_sidecar(trained / "hf")
    assert sidecar is not None
    layout = {name: value for name, value in sidecar.layout.items() if name != "max_windows"}
    assert Settings.from_sidecar(sidecar).max_windows == 1
    assert Settings.from_sidecar(replace(sidecar, layout=layout)).max_windows is None
    assert Critic.load(str(trained), max_windows=3).encoder.max_windows == 3


def test_a_critic_that_cannot_tell_gives_no_label(critic: Critic) -> None:
    told, silent = (critic.score(KNOWLEDGE, RESPONSE, abstain_at=wanted) for wanted in (0.0, 1.0))
    assert [score.label for score in told] == [score.label for score in critic.score(KNOWLEDGE, RESPONSE)]
    assert [score.label for score in silent] == [None] * 4
    assert [score.probability for score in silent] == [score.probability for score in told]
    assert silent[0].to_dict()["label"] is None
    assert [one.label for one in critic.stream(KNOWLEDGE, RESPONSE, abstain_at=1.0, progress=False)] == [None] * 4
