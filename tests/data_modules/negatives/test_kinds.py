"""The kinds of negatives: originals, verbatim knowledge, responses of other dialogues."""

from data_modules.negatives.make import (
    MAX_WORDS,
    original_responses,
    other_responses,
    verbatim_knowledge,
)
from tests.data_modules.negatives.corpus import corpus, example


def test_an_original_counts_where_the_tags_call_it_hallucinated() -> None:
    tagged = [("Hallucination",), (" partial hallucination", "Entailment"), ("Entailment",), ("Generic",), ()]
    examples = [example(0, tags=tags) for tags in tagged]
    assert [len(texts) for texts in original_responses(examples)] == [1, 1, 0, 0, 0]
    assert original_responses(examples)[0] == [examples[0].original]
    assert original_responses([example(1, original=None)]) == [[]]


def test_of_long_knowledge_the_nearest_sentences_stand_for_it() -> None:
    lines = [f"Number {n} of the many sentences in here says nothing of note to anybody." for n in range(20)]
    lines[13] = "The windmill creaks at night."
    (text,) = verbatim_knowledge([example(0, knowledge=" ".join(lines), response="Does the windmill creak?")])[0]
    assert lines[13] in text and len(text.split()) <= MAX_WORDS


def test_others_come_from_other_dialogues_and_other_knowledge() -> None:
    examples = corpus()
    groups = {e.response: e.group for e in examples}
    for one, texts in zip(examples, other_responses(examples, 5, 0), strict=True):
        assert texts and len(set(texts)) == len(texts) <= 5
        assert all(groups[text] != one.group for text in texts)


def test_what_was_said_to_the_same_knowledge_is_right_and_so_no_negative() -> None:
    twin = example(11, knowledge=example(0).knowledge.upper(), response="It was Ada Fenn, long ago, who put it there.")
    examples = [*corpus(11), twin]
    assert twin.response not in other_responses(examples, 20, 0)[0]


def test_what_the_knowledge_bears_out_is_no_negative() -> None:
    right = example(11, response="Known far and wide, the lighthouse was built by Ada Fenn.")
    empty = example(10, response="Oh, yes!")
    texts = other_responses([*corpus(10), empty, right], 20, 0)[0]
    assert texts and right.response not in texts and empty.response not in texts
