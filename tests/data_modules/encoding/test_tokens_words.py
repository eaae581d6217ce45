"""Tokenising by words gives what tokenising whole texts gives."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.encoding.tokens import _encode, _space_mark, load_tokenizer, tokenize
from tests.tiny import WORDS, write_tokenizer

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


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    made = {}
    for kind in ("wordpiece", "bpe", "unigram"):
        folder: Path = tmp_path_factory.mktemp(kind)
        write_tokenizer(folder, kind)
        made[kind] = load_tokenizer(str(folder))
    return made


@pytest.mark.parametrize(("kind", "mark"), [("wordpiece", ""), ("bpe", " "), ("unigram", None)])
def test_which_tokenizers_cut_at_spaces(tokenizers: dict, kind: str, mark: str | None) -> None:
    assert _space_mark(tokenizers[kind].backend_tokenizer) == mark


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@settings(max_examples=200)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_words_give_the_ids_of_whole_texts(tokenizers: dict, kind: str, texts: list[str]) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenize(tokenizer, texts)
    whole = _encode(tokenizer.backend_tokenizer, texts)
    assert [ids.row(i).tolist() for i in range(len(texts))] == [whole.row(i).tolist() for i in range(len(texts))]
