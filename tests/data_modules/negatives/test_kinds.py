"""Each kind of negative is made of its own: originals, verbatim knowledge, responses of other dialogues."""

import random
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.negatives.original import original_responses
from data_modules.negatives.other import NUM_PER_WORD, _SimilarExamples, other_responses
from data_modules.negatives.verbatim import MAX_WORDS, verbatim_knowledge
from faithkit.provenance.row_keys import text_key
from faithkit.records import Example
from tests.data_modules.negatives.corpus import corpus, example, in_two_orders


def test_an_original_counts_where_the_tags_call_it_hallucinated() -> None:
    tagged = [("Hallucination",), (" partial hallucination", "Entailment"), ("Entailment",), ("Generic",), ()]
    examples = [example(0, tags=tags) for tags in tagged]
    assert [len(texts) for texts in original_responses(examples)] == [1, 1, 0, 0, 0]
    assert original_responses(examples)[0] == [examples[0].original]
    assert original_responses([example(1, original=None)]) == [[]]


def test_verbatim_is_the_knowledge() -> None:
    assert verbatim_knowledge([example(2)]) == [[example(2).knowledge]]


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


def test_near_knowledge_comes_first() -> None:
    near = example(9, knowledge="A lighthouse stands on the cliff.", response="Gulls nest on that cliff every spring.")
    far = [
        example(n, knowledge=f"Paper number {n} burns.", response=f"Nobody reads paper {n} anywhere today.")
        for n in (3, 4, 6)
    ]
    assert other_responses([example(0), *far, near], 3, 0)[0][0] == near.response


def test_others_are_told_apart_in_any_script() -> None:
    near = example(9, knowledge="Маяк стоит на высокой скале.", response="Чайки гнездятся на скале каждую весну.")
    far = [example(n, knowledge=f"Бумага номер {n} горит.", response="Бумагу давно никто не читает.") for n in (3, 4)]
    own = example(0, knowledge="Маяк на скале построил Ян.", response="Ян построил маяк на скале.")
    twin = example(6, knowledge="Ян построил маяк на этой скале.", response="Маяк на скале построил Ян.")
    texts = other_responses([own, *far, near, twin], 3, 0)[0]
    assert texts[0] == near.response and twin.response not in texts


class Watched(list[int]):
    """A list that counts the items that are looked at."""

    looked = 0

    def __getitem__(self, place: Any) -> Any:
        self.looked += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)

    def __add__(self, other: Any) -> Any:
        self.looked += len(self) + len(other)
        return super().__add__(other)


def test_of_a_word_of_many_examples_a_part_is_looked_at_and_the_rest_not_copied() -> None:
    examples = [example(n, id=f"{n:03}", group=str(n), knowledge=f"Stone {n} lies on the shore.") for n in range(300)]
    index = _SimilarExamples(examples, 0)
    index.rows.update({word: Watched(rows) for word, rows in index.rows.items()})
    rows, random = index.rows["shore"], Random("0:007")
    assert isinstance(rows, Watched) and len(rows) == 300
    found = list(index._by_similarity(examples[7]))
    shared = [rows for word, rows in index.rows.items() if word in index.weight]
    assert all(isinstance(rows, Watched) and rows.looked == NUM_PER_WORD for rows in shared)
    # The places are those behind a random one, cyclically; the three words weigh the same.
    looked: set[int] = set()
    for word in ("stone", "shore", "lies"):
        start = random.randrange(300)
        looked |= {index.rows[word][(start + step) % 300] for step in range(NUM_PER_WORD)}
    assert set(found[:-NUM_PER_WORD]) == looked


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_of_the_rows_does_not_matter(shuffler: random.Random, seed: int) -> None:
    first, second = in_two_orders(lambda rows: other_responses(rows, 3, seed), shuffler)
    assert first == second


def test_another_seed_gives_others() -> None:
    examples = [
        replace(e, id=f"{n}/{e.id}", group=f"{n}/{e.group}", response=f"{e.response} Or so {n} say.")
        for n in range(20)
        for e in corpus()
    ]
    assert other_responses(examples, 2, 0) != other_responses(examples, 2, 1)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=6))
def test_any_text_may_stand_there(texts: list[tuple[str, str]]) -> None:
    examples: list[Example] = [
        example(n * 3, id=str(n), group=str(n), knowledge=known, response=said) for n, (known, said) in enumerate(texts)
    ]
    for one, found in zip(examples, other_responses(examples, 3, 0), strict=True):
        for text in found:
            assert text_key(text) != text_key(one.response) or not text_key(text)
