"""The teacher: what it measures, worked out by hand, and that it learns from few labels what words show."""

from pathlib import Path

import numpy as np
import pytest

from data_modules.weak.features import (
    NUM_VECTOR_FEATURES,
    NUM_WORD_FEATURES,
    text_vectors,
    vector_features,
    word_features,
)
from data_modules.weak.teacher import Teacher
from faithkit.token_overlap import greedy_runs
from tests.data_modules.examples import example

KNOWN = ["river", "city", "king", "music", "food", "water", "stone", "book", "film", "game", "dog", "cat", "tree"]


def test_copied_runs_are_the_longest_from_the_left() -> None:
    assert greedy_runs("a b c x b c".split(), "b c a b c d".split()) == [3, 2]
    assert greedy_runs(["x"], ["a"]) == [] and greedy_runs([], ["a"]) == []


def test_word_features_of_a_pair_by_hand() -> None:
    features = word_features("Lake Orvel formed in 1843.", "I think Lake Orvel formed in 1850, don't you?")
    assert len(features) == NUM_WORD_FEATURES
    words, known, share, supported, novel = features[:5]
    assert (words, known, share) == (9, 5, 9 / 5)
    # Of the content words think, lake, orvel, form, 1850, don't the knowledge has three; `think` fills, two are new.
    assert supported == pytest.approx(3 / 6) and novel == 2
    first_person, second_person, questions, exclamations, full_stops, numbers, new_numbers = features[7:14]
    assert (first_person, second_person, questions, exclamations, full_stops) == (1, 1, 1, 0, 0)
    assert (numbers, new_numbers) == (1, 1)
    assert features[16] == 4, "Lake Orvel formed in"
    assert features[23] == 1, "one negation more than the knowledge"


def test_a_copied_token_is_matched_best(tiny_bert: Path) -> None:
    teacher = Teacher(str(tiny_bert))
    vectors = text_vectors(teacher.model, teacher.tokenizer, ["river city", "king", "river city"])
    assert set(vectors) == {"river city", "king"} and vectors["king"].tokens == ["king"]
    same = vector_features(vectors["river city"], vectors["river city"])
    other = vector_features(vectors["river city"], vectors["king"])
    assert len(same) == NUM_VECTOR_FEATURES and same[:3] == pytest.approx([1, 1, 1], abs=1e-5)
    assert other[1] < 1


def test_vectors_do_not_depend_on_the_batch(tiny_bert: Path) -> None:
    teacher = Teacher(str(tiny_bert))
    texts = ["river", "the king of the old city wrote a book", "music"]
    whole = text_vectors(teacher.model, teacher.tokenizer, texts)
    for text in texts:
        alone = text_vectors(teacher.model, teacher.tokenizer, [text])[text]
        np.testing.assert_allclose(whole[text].units, alone.units, atol=1e-5)
        np.testing.assert_allclose(whole[text].mean, alone.mean, atol=1e-5)


def test_it_learns_from_few_labels_and_always_the_same(tiny_bert: Path) -> None:
    rng = np.random.default_rng(0)

    def pair(faithful: bool) -> tuple[str, str]:
        words = rng.permutation(KNOWN)
        return f"the {words[0]} of the {words[1]}", f"it is the {words[0] if faithful else words[2]}"

    labelled = [
        example(knowledge=k, response=r, label=label)
        for label in ("faithful", "hallucinated")
        for k, r in (pair(label == "faithful") for _ in range(30))
    ]
    asked = [pair(True) for _ in range(10)] + [pair(False) for _ in range(10)]
    first, second = (Teacher(str(tiny_bert), seed=1).fit(labelled).probabilities(asked) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first[:10].max() < 0.5 < first[10:].min() and first.min() >= 0.01 and first.max() <= 0.99
