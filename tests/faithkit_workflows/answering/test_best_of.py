"""Best of N and resampling keep the right answer, whatever judges."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.answering.strategies import BestOf, OwnAnswer, Resampling
from generation.generator import Candidate, Generator
from tests.generation.folders import CONTROL, examples

SAMPLED = Decoding(strategy="nucleus", top_p=0.95, max_new_tokens=8, num_samples=4)


class Written:
    """A generator whose answers are given: of each draw the next."""

    def __init__(self, *draws: list[list[Candidate]], control: tuple[str, ...] = CONTROL):
        self.draws, self.asked = list(draws), []  # type: ignore[var-annotated]
        layout = type("Layout", (), {"control": control})
        self.encoder = type("Encoder", (), {"layout": layout})

    def candidates(self, asked: Sequence[Example], **options: Any) -> list[list[Candidate]]:
        self.asked.append([example.id for example in asked])
        return self.draws.pop(0)


class Scores:
    """A detector that reads its score off a table."""

    def __init__(self, scores: dict[str, float | None]):
        self.scores, self.seen = scores, []  # type: ignore[var-annotated]

    def predict_examples(self, asked: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        for example in asked:
            self.seen.append(example.response)
            score = self.scores[example.response]
            label = HALLUCINATED if score is None or score > 0.5 else FAITHFUL
            yield Prediction(id=example.id, label=label, score=score)


def written(*texts: tuple[str, float]) -> list[Candidate]:
    return [Candidate(text, logprob, True) for text, logprob in texts]


def test_the_lowest_score_wins_then_the_likelier_and_silence_last() -> None:
    answers = [
        written(("bad", -1.0), ("good", -9.0), ("bad", -0.5)),
        written(("even", -3.0), ("equal", -2.0)),
        written(("", -0.1), ("bad", -4.0)),
        written(("", -0.1)),
    ]
    detector = Scores({"bad": 0.9, "good": 0.1, "even": 0.3, "equal": 0.3})
    best = BestOf(Written(answers), detector, SAMPLED).answer(examples()[:4])  # type: ignore[arg-type]
    assert [(p.text, p.score) for p in best] == [("good", 0.1), ("equal", 0.3), ("bad", 0.9), ("", None)]
    assert [p.id for p in best] == [e.id for e in examples()[:4]]
    assert [p.label for p in best] == [FAITHFUL, FAITHFUL, HALLUCINATED, None]
    assert detector.seen.count("bad") == 2, "the same text is judged once an example"


def test_a_detector_without_scores_chooses_by_label() -> None:
    class Labels(Scores):
        def predict_examples(self, asked: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
            for said in super().predict_examples(asked):
                yield replace(said, score=None)

    best = BestOf(Written([written(("bad", -1.0), ("good", -9.0))]), Labels({"bad": 0.9, "good": 0.1}), SAMPLED)  # type: ignore[arg-type]
    (answer,) = best.answer(examples()[:1])
    assert answer.text == "good"


@pytest.mark.parametrize("detector", ["trained", "trained_tagger"])
def test_critics_and_taggers_choose_the_same_in_any_batch(detector, tiny_llama, request) -> None:
    from faithkit_workflows.detectors.loading import load_detector

    judge = load_detector(str(request.getfixturevalue(detector)), precision="32-true", batch_tokens=None)
    one, many = (
        BestOf(Generator.load(str(tiny_llama), batch_size=size), judge, SAMPLED).answer(examples()) for size in (3, 64)
    )
    assert [(p.id, p.text) for p in one] == [(p.id, p.text) for p in many]
    first = zip(examples(), OwnAnswer(Generator.load(str(tiny_llama)), SAMPLED).answer(examples()), strict=True)
    rows = [replace(example, response=own.text, label=None, spans=None) for example, own in first if own.text]
    judged = judge.predict_examples(rows)
    by_id = {p.id: p for p in one}
    assert all((by_id[p.id].score or 0) <= (p.score or 0) + 1e-6 for p in judged)


def features(asked: Sequence[Example]) -> list[tuple[str, ...]]:
    """Takes a response's own words for its control tokens."""
    return [tuple(f"<|{word}|>" for word in example.response.split()) for example in asked]


WANTED = "no-first-person high-overlap entailed"
NUCLEUS = Decoding(strategy="nucleus")


def test_an_answer_that_misses_a_feature_is_drawn_again_and_the_least_missing_is_kept() -> None:
    generator = Written(
        [written((WANTED, -1.0)), written(("entailed", -1.0)), written(("nothing", -1.0))],
        [written(("nothing", -1.0)), written((WANTED, -2.0))],
        [written(("high-overlap entailed", -1.0))],
    )
    counted: list[int] = []
    resampling = Resampling(generator, features, NUCLEUS, max_draws=3)  # type: ignore[arg-type]
    kept = resampling.answer(examples()[:3], counted.append)
    assert [answer.text for answer in kept] == [WANTED, "high-overlap entailed", WANTED]
    assert [len(ids) for ids in generator.asked] == [3, 2, 1] and sum(counted) == 3
    assert len({id_ for ids in generator.asked for id_ in ids}) == 6, "each draw has a stream of its own"


def test_resampling_a_real_generator_does_not_depend_on_the_batch(tiny_controlled: Path) -> None:
    def short(asked: Sequence[Example]) -> list[tuple[str, ...]]:
        return [("<|entailed|>",) if len(example.response) < 20 else () for example in asked]

    decoding = Decoding(strategy="nucleus", top_p=1.0, max_new_tokens=6)
    generators = (Generator.load(str(tiny_controlled), batch_size=size) for size in (1, 16))
    first, second = (Resampling(one, short, decoding, max_draws=3).answer(examples()[:6]) for one in generators)
    assert first == second and [p.id for p in first] == [e.id for e in examples()[:6]]


def test_what_cannot_be_resampled_is_refused() -> None:
    for control, decoding, max_draws, words in (
        *((CONTROL, Decoding(), 3, "writes the same again"), (CONTROL, NUCLEUS, 0, "resample is 0")),
        ((), NUCLEUS, 3, "without control tokens"),
    ):
        with pytest.raises(UserError, match=words):
            Resampling(Written(control=control), features, decoding, max_draws=max_draws)  # type: ignore[arg-type]
