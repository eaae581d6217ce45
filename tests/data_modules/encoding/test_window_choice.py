"""The windows of long knowledge that share most with the response are read, and as many as wanted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.window_choice import best_windows
from tests.tiny import tiny_tokenizer

TOKENS = st.lists(st.integers(0, 9), max_size=6)
ROW = st.tuples(TOKENS, st.lists(TOKENS, min_size=1, max_size=5))  # a response, and what its windows show
Row = tuple[list[int], list[list[int]]]


def test_those_that_share_most_distinct_tokens_are_kept_in_their_order() -> None:
    said = Ragged.from_lists([[1, 2, 3, 3], [7]])
    shown = Ragged.from_lists([[3, 3, 3], [1, 2], [9], [1, 2, 3], [7, 7], [8], [7]])
    kept = best_windows(said, shown, np.array([4, 3]), 2)
    assert kept.tolist() == [1, 3, 4, 6]
    assert best_windows(said, shown, np.array([4, 3]), 1).tolist() == [3, 4], "of equal ones the first"


@given(st.lists(ROW, min_size=1, max_size=4), st.integers(1, 4))
def test_no_window_left_out_shares_more_than_one_that_is_read(rows: list[Row], most: int) -> None:
    sizes = np.array([len(windows) for _, windows in rows])
    shown = [window for _, windows in rows for window in windows]
    kept = best_windows(Ragged.from_lists([said for said, _ in rows]), Ragged.from_lists(shown), sizes, most).tolist()
    assert kept == sorted(set(kept))
    begin = 0
    for said, windows in rows:
        own = [place - begin for place in kept if begin <= place < begin + len(windows)]
        assert len(own) == min(most, len(windows))
        shares = [len(set(said) & set(window)) for window in windows]
        left_out = [shares[place] for place in range(len(windows)) if place not in own]
        assert min(shares[place] for place in own) >= max(left_out, default=0)
        begin += len(windows)


@pytest.mark.parametrize("order", ["knowledge_response", "response_knowledge"])
def test_a_pair_reads_the_window_that_holds_its_words(order: str) -> None:
    filler = "the dog is old and the cat is old and " * 12
    knowledge = [f"{filler} the king plays music {filler}", "the city"]
    every = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32, order=order)
    one = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32, order=order, max_windows=1)
    columns = every.encode_texts(knowledge, ["king plays music", "a city"])
    chosen = one.windows(columns)
    assert len(every.windows(columns)) > 6 and chosen.row.tolist() == [0, 1]
    shown = columns["knowledge"].slice_rows(chosen.row, chosen.start, chosen.size).row(0)
    assert set(columns["response"].row(0).tolist()) <= set(shown.tolist())
    assert every.fingerprint() == one.fingerprint(), "training reads the beginning, so its cached tokens are the same"
