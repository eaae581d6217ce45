import time
from random import Random
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.baselines.word_features import (
    fit_length,
    fit_overlap,
    length_predictions,
    overlap_predictions,
    unsupported_grams,
    unsupported_share,
)
from faithkit.records import Example
from faithkit.words import unicode_words


def example(id_, label, response, knowledge="The kiwi is a small bird of New Zealand."):
    return Example(id=id_, source="s", split="test", group=id_, knowledge=knowledge, response=response, label=label)


EXAMPLES = [
    example("a", "faithful", "The kiwi is a small bird."),
    example("b", "hallucinated", "Penguins love eating fresh kiwi."),
    example("c", "faithful", "New Zealand, a bird!"),
    example("d", "faithful", "A small bird of Zealand I think"),
    example("e", "hallucinated", "I ate one yesterday"),
]


def test_the_share_of_unknown_words_is_counted_word_by_word():
    assert unsupported_share("Kiwis are birds.", "kiwis ARE fish") == pytest.approx(1 / 3)
    assert unsupported_share("", "anything") == 1.0
    assert unsupported_share("Kiwis", " ... ") == 0.0


def test_other_forms_of_a_word_are_known_in_part_by_their_characters():
    known = "The kiwi runs at night."
    assert unsupported_grams(known, "the KIWI, at night!") == pytest.approx(2 / 16)  # "wi a" and "i at" alone
    assert 0 < unsupported_grams(known, "running kiwis") < unsupported_share(known, "running kiwis") == 1
    assert unsupported_grams(known, "at") == 0 and unsupported_grams(known, "a") == 1
    assert unsupported_grams("", "anything") == 1 and unsupported_grams(known, " ... ") == 0


@given(st.text(alphabet="ab ç"), st.text(alphabet="ab ç") | st.text())
def test_unknown_runs_are_those_that_stand_nowhere_in_the_knowledge(knowledge, response):
    known, said = (f" {' '.join(unicode_words(text))} " for text in (knowledge, response))
    runs = [said[place : place + 4] for place in range(max(1, len(said) - 3))]
    plain = 0 if said.isspace() else sum(run not in known for run in runs) / len(runs)
    assert unsupported_grams(knowledge, response) == plain


def test_long_knowledge_is_not_searched_anew_for_each_run():
    letters = "".join(Random(0).choices(ascii_lowercase, k=400_000))
    start = time.process_time()
    assert 0.3 < unsupported_grams(letters[:250_000], letters[250_000:]) < 0.9
    assert time.process_time() - start < 2  # linear, it takes a tenth of that


def test_a_fitted_threshold_parts_what_words_can_part():
    found = overlap_predictions(EXAMPLES, fit_overlap(EXAMPLES))
    assert [p.label == e.label for p, e in zip(found.values(), EXAMPLES, strict=True)] == [True] * 5


@given(responses=st.lists(st.text(), max_size=12))
def test_without_training_examples_at_most_half_are_called_hallucinated(responses):
    examples = [example(str(row), None, response) for row, response in enumerate(responses)]
    found = overlap_predictions(examples)
    assert len(found) == len(examples)
    assert 2 * sum(p.label == "hallucinated" for p in found.values()) <= len(examples)
    assert all(0 <= p.score <= 1 for p in found.values())


def by_length(sizes, wrong):
    return [example(str(n), "hallucinated" if n in wrong else "faithful", "x" * n) for n in sizes]


def test_the_longer_half_is_called_hallucinated_where_no_label_is_known():
    examples = by_length([4, 9, 30, 900], wrong=())
    found = length_predictions(examples)
    assert [p.label for p in found.values()] == ["faithful", "faithful", "hallucinated", "hallucinated"]
    scores = [p.score for p in found.values()]
    assert scores == sorted(scores) and all(0 <= score < 1 for score in scores)
    # Of equal lengths none is longer than the median.
    equal = length_predictions([*by_length([7], ()), example("b", None, "y" * 7)])
    assert {p.label for p in equal.values()} == {"faithful"}


@pytest.mark.parametrize("wrong", [(30, 900), (4, 9)])
def test_a_fitted_length_finds_the_threshold_and_whether_long_or_short_is_wrong(wrong):
    rule = fit_length(by_length([4, 9, 30, 900], wrong))
    assert rule.longer == (900 in wrong)
    tested = by_length([5, 8, 40, 700], wrong=(40, 700) if rule.longer else (5, 8))
    assert [p.label for p in length_predictions(tested, rule).values()] == [e.label for e in tested]
    assert fit_length([]) is None
