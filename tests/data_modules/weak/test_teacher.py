"""The teacher: what it measures, worked out by hand, and that it learns from few labels what words show."""

from pathlib import Path

import numpy as np

from data_modules.weak.teacher import Teacher, text_vectors
from tests.data_modules.examples import example

KNOWN = ["river", "city", "king", "music", "food", "water", "stone", "book", "film", "game", "dog", "cat", "tree"]


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
