"""Tokens of pairs and of words equal those of the tokenizer, for every family, whatever the text."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import _encode, load_tokenizer, tokenize
from tests.data_modules.examples import example
from tests.tiny import WORDS, tiny_tokenizer, write_tokenizer

KINDS = ("wordpiece", "bpe", "unigram")
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=60)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp(request.param)
    write_tokenizer(folder, request.param)
    return load_tokenizer(str(folder))


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pairs_encode_as_the_tokenizer_encodes_them(tokenizer: Any, pairs: list[tuple[str, str]]) -> None:
    encoder = PairEncoder(tokenizer=tokenizer, max_length=1000)
    columns = encoder.encode([example(knowledge=k, response=r) for k, r in pairs], Counter())
    batch = encoder.collate(columns)
    theirs = tokenizer([k for k, _ in pairs], [r for _, r in pairs], padding=True)
    assert batch["input_ids"].tolist() == theirs["input_ids"]
    assert batch["attention_mask"].tolist() == theirs["attention_mask"]
    if "token_type_ids" in tokenizer.model_input_names:
        assert batch["token_type_ids"].tolist() == theirs["token_type_ids"]


def test_a_lone_surrogate_does_not_crash(tokenizer: Any) -> None:
    assert len(tokenize(tokenizer, ["a \ud800 b", "plain"])) == 2


AWKWARD = [*" \n\t\u00a0\x00\u0301é", "  ", *"東京 don't [SEP] <mask> 1995 😀 's".split()]
TEXTS = st.lists(st.sampled_from([*WORDS, *AWKWARD, " ", " ", " "]), max_size=30).map("".join)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_words_give_the_ids_of_whole_texts(kind: str, texts: list[str]) -> None:
    tokenizer = tiny_tokenizer(kind)
    ids = tokenize(tokenizer, texts)
    whole = _encode(tokenizer.backend_tokenizer, texts)
    assert [ids.row(i).tolist() for i in range(len(texts))] == [whole.row(i).tolist() for i in range(len(texts))]
