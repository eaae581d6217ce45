"""Of a long text a model reads the parts that share tokens with the response, in windows of its length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding import tokens
from data_modules.encoding.encoder import Ragged, offsets_of
from data_modules.encoding.tokens import text_blocks, tokenize
from data_modules.encoding.window_choice import WindowChoice, divide, rank_parts
from tests.tiny import WORDS, tiny_tokenizer

CHOICE = WindowChoice(np.array([7], np.int32))
IDS = st.lists(st.integers(5, 20), min_size=1, max_size=300).map(lambda ids: np.array(ids, np.int32))


def test_rare_tokens_count_more_and_no_token_counts_twice() -> None:
    text = np.array([1, 2, 1, 3, 1, 4, 1, 4], np.int32)  # parts of two tokens; 1 is in all
    start = np.arange(0, 8, 2)
    assert rank_parts(np.array([1, 4, 3], np.int32), text, start, start + 2, 4).tolist() == [1, 2]
    assert rank_parts(np.array([9], np.int32), text, start, start + 2, 4).tolist() == [0], "one part is read at least"


@given(text=IDS, response=IDS)
def test_no_shared_token_is_missed_until_the_limit_is_reached(text: np.ndarray, response: np.ndarray) -> None:
    start = np.arange(0, len(text), 4)
    ranked = rank_parts(response, text, start, np.minimum(start + 4, len(text)), len(start))
    read = np.concatenate([text[start[part] : start[part] + 4] for part in ranked])
    assert set(response) & set(text) == set(response) & set(read) and len(set(ranked.tolist())) == len(ranked)


@given(text=IDS, response=IDS, size=st.integers(1, 100), most=st.integers(1, 3))
def test_windows_are_parts_of_the_text_in_order(text: np.ndarray, response: np.ndarray, size: int, most: int) -> None:
    windows = CHOICE.compose(response, text, size, most)
    assert 1 <= len(windows) <= most and all(1 <= len(window) <= size for window in windows)
    start = divide(len(text), 1 + np.flatnonzero(text == 7), max(1, min(32, size // 2)))
    parts = [part.tolist() for part in np.split(text, start[1:])]
    for window in windows:
        ends = {0}  # how much of the window the parts so far may make up
        for part in parts:
            ends |= {end + len(part) for end in ends if window[end : end + len(part)].tolist() == part}
        assert len(window) in ends


@given(rows=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4))
def test_a_row_is_read_alone_as_in_a_batch(rows: list[tuple[np.ndarray, np.ndarray]]) -> None:
    def choose(some: list[tuple[np.ndarray, np.ndarray]]) -> list[list[int]]:
        responses, texts = (Ragged.from_lists([row[side].tolist() for row in some]) for side in (0, 1))
        counts = -(-texts.lengths // 40)
        start = np.concatenate([np.arange(count) * 40 for count in counts])
        size = np.minimum(40, np.repeat(texts.lengths, counts) - start)
        kept, shown = CHOICE.choose(responses, texts, np.arange(len(some)), counts, start, size, 1)
        assert kept.tolist() == offsets_of(counts)[:-1].tolist()
        return [shown.row(number).tolist() for number in range(len(shown))]

    assert choose(rows) == [choose([row])[0] for row in rows]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@given(texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), min_size=1, max_size=4))
def test_long_texts_are_tokenised_in_blocks(kind: str, texts: list[str]) -> None:
    whole = tokenize(tiny_tokenizer(kind), texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "BLOCK", 30)
        assert all(end - begin <= 60 for text in texts for begin, end in text_blocks(text))
        in_blocks = tokenize(tiny_tokenizer(kind), texts)
    assert in_blocks.values.tolist() == whole.values.tolist() and in_blocks.offsets.tolist() == whole.offsets.tolist()
