import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.evaluation.baselines import overlap_predictions, unsupported_share
from faithkit.records import Example


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


def test_a_fitted_threshold_parts_what_words_can_part():
    found = overlap_predictions(EXAMPLES, train=EXAMPLES)
    assert [p.label == e.label for p, e in zip(found.values(), EXAMPLES, strict=True)] == [True] * 5


@settings(max_examples=60)
@given(responses=st.lists(st.text(), max_size=12))
def test_without_training_examples_at_most_half_are_called_hallucinated(responses):
    examples = [example(str(row), None, response) for row, response in enumerate(responses)]
    found = overlap_predictions(examples)
    assert len(found) == len(examples)
    assert 2 * sum(p.label == "hallucinated" for p in found.values()) <= len(examples)
    assert all(0 <= p.score <= 1 for p in found.values())
