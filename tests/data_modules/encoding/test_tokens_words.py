"""Tokenising by words gives what tokenising whole texts gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.tokens import _encode, _space_mark, tokenize
from tests.tiny import WORDS, tiny_tokenizer

AWKWARD = [
    " ",
    "  ",
    "\n",
    "\t",
    "\u00a0",
    "\x00",
    "\u0301",
    "é",
    "東京",
    "don't",
    "[SEP]",
    "<mask>",
    "1995",
    "😀",
    "'s",
]
TEXTS = st.lists(st.sampled_from([*WORDS, *AWKWARD, " ", " ", " "]), max_size=30).map("".join)


@pytest.mark.parametrize(("kind", "mark"), [("wordpiece", ""), ("bpe", " "), ("unigram", None)])
def test_which_tokenizers_cut_at_spaces(kind: str, mark: str | None) -> None:
    assert _space_mark(tiny_tokenizer(kind).backend_tokenizer) == mark


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_words_give_the_ids_of_whole_texts(kind: str, texts: list[str]) -> None:
    tokenizer = tiny_tokenizer(kind)
    ids = tokenize(tokenizer, texts)
    whole = _encode(tokenizer.backend_tokenizer, texts)
    assert [ids.row(i).tolist() for i in range(len(texts))] == [whole.row(i).tolist() for i in range(len(texts))]
