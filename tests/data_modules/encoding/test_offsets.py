"""Text to tokens to text: with any tokenizer and any text, spans that became tags come back as the same characters."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from critic.tagger.span_calibration import find_spans
from data_modules.encoding.tokens import NOTHING, OUTSIDE, tags_of, tokenize_with_offsets, visible_extents
from faithkit.records import SPAN_LABELS, Span

# What tokenizers treat differently.
PIECES = [
    "a", "the", "river", "the river", "river river", "Caf\u00e9", "cafe\u0301", "na\u00efve", "STRASSE \u00df",
    " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\x1c",
    ".", ",", "!?", "'s", "\u2581", "##a", "\u0120", "[UNK]", "<s>",
    "\U0001f642", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f", "\u0301", "\u0308\u0301", "\u200b", "\u200d", "\ufeff", "\u00ad", "\0", "\x01", "\x7f",
    "\ufffd", "\ud800", "\udfff", "\ud83d\ude42", "\u5317\u4eac", "\ud55c\uad6d", "\u0e01\u0e33", "\u0928\u093f",
    "\ufb01", "\u2126", "\u0130", "\u1e9e", "\u00bd", "\uff21",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
KINDS = ("wordpiece", "wordpiece-cased", "byte-bpe", "byte-bpe-nfc-trimmed", "unigram", "unigram-nfkc")


CORPUS = [
    "the river is long and the cafe is old",
    "a river river, na\u00efve caf\u00e9!",
    "strasse 's \u5317\u4eac abcdefghijklm",
]


@cache
def build(kind: str) -> Any:
    """The part of a fast tokenizer that finds offsets."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    if kind.startswith("wordpiece"):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        lower = kind == "wordpiece"
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=90, special_tokens=["[UNK]"])
    elif kind.startswith("byte-bpe"):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if kind != "byte-bpe":  # as ModernBERT reads and RoBERTa reports
            tokenizer.normalizer = normalizers.NFC()
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        if kind != "unigram":
            tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=["<unk>"], unk_token="<unk>")
    trainer.show_progress = False
    tokenizer.train_from_iterator(CORPUS, trainer)
    return SimpleNamespace(backend_tokenizer=tokenizer)


def extents(kind: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    _, (offsets,) = tokenize_with_offsets(build(kind), [text])
    return visible_extents(text, offsets)


def visible(text: str) -> set[int]:
    return {place for place, character in enumerate(text) if not character.isspace()}


def characters(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {place for low, high in zip(start, end, strict=True) for place in range(low, high)}


def spans_within(text: str, data: Any) -> tuple[Span, ...]:
    """Up to four, also empty ones, at the edges, overlapping or repeated."""
    place = st.integers(0, len(text)) | st.sampled_from([0, len(text)])
    pairs = data.draw(st.lists(st.tuples(place, place, st.sampled_from(SPAN_LABELS)), max_size=4))
    return tuple(Span(start=min(a, b), end=max(a, b), label=label) for a, b, label in pairs)


def decoded(start: np.ndarray, end: np.ndarray, tags: np.ndarray) -> set[int]:
    found = find_spans(start, end, (tags > 0).astype(float), np.zeros(len(tags), int), threshold=0.5)
    return characters(found.start, found.end)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
@example(text=" the river")
@example(text="\u0301a")
@example(text="\u200b")
@example(text="a\u200b \u200b")
def test_every_visible_character_belongs_to_a_token(kind: str, text: str) -> None:
    start, end = extents(kind, text)
    assert (start <= end).all() and (end <= len(text)).all()
    owned = characters(start, end)
    if owned:
        assert visible(text) <= owned
    for low, high in zip(start, end, strict=True):
        inside = text[low:high]
        assert not inside or not (inside[0].isspace() or inside[-1].isspace())
    assert (np.diff(start[end > start]) >= 0).all(), "in the order of the text"


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS, data=st.data())
def test_spans_become_tags_and_come_back_without_a_loss(kind: str, text: str, data: Any) -> None:
    start, end = extents(kind, text)
    spans = spans_within(text, data)
    tags = tags_of(spans, start, end, len(text))
    assert ((tags == NOTHING) == (start == end)).all()
    gold = {place for span in spans for place in range(span.start, span.end)}
    back = decoded(start, end, tags)
    if characters(start, end):
        assert gold & visible(text) <= back
    for low, high, tag in zip(start, end, tags, strict=True):
        if tag > 0:
            assert gold & set(range(low, high)), "a marked token holds a marked character"
        elif tag == OUTSIDE:
            assert not gold & set(range(low, high))
