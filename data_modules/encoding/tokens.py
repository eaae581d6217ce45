"""Tokenises texts, and maps tokens to characters and spans.

Each distinct text is tokenised once, and where the tokenizer allows it, each distinct word once.

Dialogue corpora repeat themselves: a turn is part of the history of every later turn, and a knowledge sentence serves
several responses. Texts are therefore tokenised separately, and sequences are assembled from their ids. For every
fast tokenizer this equals tokenising the pair, because it treats the two texts separately and then adds its special
tokens (tested against the tokenizer's pair encoding).

The tokenizers of BERT and of GPT-2 (RoBERTa's too) split at every space before they look for pieces, so a word's ids do
not depend on its neighbours. With them the same is done for words, which repeat far more often than texts do.

Tokenizers disagree about what an offset covers: byte-level ones give a word its leading space or not, split an emoji
into tokens that all claim the same character, and WordPiece and Unigram drop what their normaliser removes (combining
marks, zero-width characters). Here every token gets an extent such that each visible character of the text lies in at
least one extent, and no extent begins or ends with white space: going from spans to tokens and back loses nothing.

Shapes below: T tokens, C characters.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import Ints, Ragged, offsets_of, stack_rows
from faithkit.errors import UserError
from faithkit.records import SPAN_LABELS, UNTYPED, Span
from faithkit.weights.load import load_tokenizer as load_tokenizer

BLOCK = 2**20  # characters that are tokenised at a time
# transformers.PreTrainedTokenizerFast; not imported, so that scripts start without waiting for transformers.
Tokenizer = Any
NOTHING = -1  # the tag of a token that covers no visible character
OUTSIDE = 0  # the tag of a token that no span touches; labels are numbered from 1, in the order of SPAN_LABELS
_NUMBERS = {label: number for number, label in enumerate(SPAN_LABELS, 1)}  # other labels count as UNTYPED
UNTYPED_TAG = _NUMBERS[UNTYPED]


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """The special tokens around a pair of texts: prefix, first text, middle, second text, suffix.

    Args:
        typed: The model takes token type ids: 0 up to the middle, 1 for the second text and the suffix.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    typed: bool

    @property
    def num_special(self) -> int:
        """The number of special tokens of a pair."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "PairTemplate":
        """Finds the template by encoding a pair of texts of one token each."""
        if tokenizer.pad_token_id is None:
            hint = "use a model with one, or set it in tokenizer_config.json"
            raise UserError("the tokenizer has no padding token", place=tokenizer.name_or_path, hint=hint)
        first, second = _two_single_token_texts(tokenizer)
        (first_id,) = tokenizer(first, add_special_tokens=False)["input_ids"]
        (second_id,) = tokenizer(second, add_special_tokens=False)["input_ids"]
        encoded = tokenizer(first, second, return_token_type_ids=True)
        ids = list(encoded["input_ids"])
        first_place, second_place = ids.index(first_id), len(ids) - 1 - ids[::-1].index(second_id)
        typed = "token_type_ids" in tokenizer.model_input_names and max(encoded["token_type_ids"]) == 1
        prefix, middle, suffix = ids[:first_place], ids[first_place + 1 : second_place], ids[second_place + 1 :]
        return cls(tuple(prefix), tuple(middle), tuple(suffix), typed)


def single_template(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Finds the special tokens before and behind a text that is read alone."""
    text, _ = _two_single_token_texts(tokenizer)
    (token_id,) = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = list(tokenizer(text)["input_ids"])
    return tuple(ids[: ids.index(token_id)]), tuple(ids[ids.index(token_id) + 1 :])


def _two_single_token_texts(tokenizer: Tokenizer) -> tuple[str, str]:
    found: list[str] = []
    for text in "abcdefghijklmnopqrstuvwxyz0123456789":
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1:
            found.append(text)
        if len(found) == 2:
            return found[0], found[1]
    raise ValueError("the tokenizer gives no single token for any letter or digit")


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
    """Tokenises texts without special tokens; each distinct text once."""
    row_of: dict[str, int] = {}  # distinct text to its row
    rows = np.fromiter((row_of.setdefault(text, len(row_of)) for text in texts), np.int64, len(texts))
    backend = _plain_backend(tokenizer)
    unique = make_encodable(row_of)
    mark = _space_mark(backend)
    if mark is None:
        return _encode(backend, unique).take(rows)
    # Each distinct word once; the texts are put together from their words' ids.
    word_of: defaultdict[str, int] = defaultdict(count().__next__)  # distinct word to its row
    words: list[int] = []  # the words of all texts, one text after the other, as rows
    ends = np.empty(len(unique), np.int64)  # the end of each text in `words`
    for place, text in enumerate(unique):
        for begin, end in text_blocks(text):
            block = text[begin:end]
            if not mark:
                parts = block.split(" ")
            elif " ".join(block.split()) == block:
                parts = block.replace(" ", "\n" + mark).split("\n")
            else:
                parts = [block]  # the tokenizer has its rules for runs of white space
            words += map(word_of.__getitem__, parts)
        ends[place] = len(words)
    by_word = _encode(backend, list(word_of)).take(np.array(words, np.int64))  # one row for each word of the texts
    # The values are in order already; a text begins where its first word begins.
    ids = Ragged(by_word.values, by_word.offsets[offsets_of(np.diff(ends, prepend=0))])
    return ids.take(rows)


def tokenize_with_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Ragged, list[list[tuple[int, int]]]]:
    """Tokenises texts without special tokens, and returns the characters that each token claims too."""
    backend = _plain_backend(tokenizer)
    encoded = backend.encode_batch(make_encodable(texts), add_special_tokens=False)
    return Ragged.from_lists([e.ids for e in encoded]), [e.offsets for e in encoded]


def _plain_backend(tokenizer: Tokenizer) -> Any:
    """Returns the Rust tokenizer, with truncation and padding switched off."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def make_encodable(texts: Iterable[str]) -> list[str]:
    """Replaces lone surrogates, which the Rust tokenizers refuse, by question marks."""
    return [text if text.isascii() else text.encode(errors="replace").decode() for text in texts]


def text_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Divides a long text before a space about every `BLOCK` characters, so that tokenising it takes bounded memory."""
    begin = 0
    while begin < len(text):
        space = text.find(" ", begin + BLOCK, begin + 2 * BLOCK)
        end = min(len(text), begin + 2 * BLOCK) if space < 0 else space
        yield begin, end
        begin = end


def _encode(backend: Any, texts: Sequence[str]) -> Ragged:
    if sum(map(len, texts)) <= BLOCK:
        return Ragged.from_lists([e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=False)])
    parts, lengths = [Ragged.from_lists([])], np.zeros(len(texts), np.int64)
    pieces = [(row, text[begin:end]) for row, text in enumerate(texts) for begin, end in text_blocks(text)]
    number = np.cumsum([len(piece) for _, piece in pieces]) // BLOCK  # of the call that tokenises a piece
    for begin, end in pairwise(np.searchsorted(number, np.arange(number[-1] + 2)).tolist()):
        encoded = backend.encode_batch_fast([piece for _, piece in pieces[begin:end]], add_special_tokens=False)
        parts.append(Ragged.from_lists([e.ids for e in encoded]))
        np.add.at(lengths, [row for row, _ in pieces[begin:end]], parts[-1].lengths)
    return Ragged(stack_rows(parts).values, offsets_of(lengths))


def _space_mark(backend: Any) -> str | None:
    """Returns what a word keeps of the space before it: nothing (BERT) or the space (GPT-2).

    None means all other tokenizers: their tokens may reach across a space, so words cannot be tokenised alone.
    """
    from tokenizers import normalizers, pre_tokenizers

    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    if any(token.rstrip or " " in token.content for token in backend.get_added_tokens_decoder().values()):
        return None
    if isinstance(pre_tokenizer, pre_tokenizers.BertPreTokenizer):
        return "" if normalizer is None or isinstance(normalizer, normalizers.BertNormalizer) else None
    splits_at_spaces = isinstance(pre_tokenizer, pre_tokenizers.ByteLevel) and pre_tokenizer.use_regex
    return " " if normalizer is None and splits_at_spaces else None


def fingerprint_of(tokenizer: Tokenizer) -> str:
    """Hashes all parts of a fast tokenizer, so that tokenizers with equal ids have equal fingerprints."""
    return _hash_state(tokenizer.backend_tokenizer.to_str())


@lru_cache(maxsize=2)  # of the splits of a dataset each asks
def _hash_state(serialized: str) -> str:
    state = json.loads(serialized)
    state.pop("truncation", None)
    state.pop("padding", None)
    return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()


def visible_extents(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Finds the beginning and the end of each token's characters; they are equal if it covers none.

    Args:
        text: The text that was tokenised.
        offsets: The tokens' offsets as the tokenizer gives them: in characters, beginnings in order.

    Returns:
        Beginnings and ends, each of shape (T,).
    """
    if not offsets:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    table = np.minimum(np.asarray(offsets, np.int64), len(text))  # (T, 2)
    start, end = table[:, 0], table[:, 1]
    # For each place of the text, (C + 1,): the first visible character at or after it (C where there is none), and the
    # end of the last visible one before it (0 where there is none).
    size = len(text)
    visible = np.fromiter((not character.isspace() for character in text), np.bool_, size)
    places = np.arange(size)
    next_visible = np.append(np.minimum.accumulate(np.where(visible, places, size)[::-1])[::-1], size)
    visible_end = np.append(0, np.maximum.accumulate(np.where(visible, places + 1, 0)))
    owns = (end > start) & (next_visible[start] < end)  # (T,): the token has a visible character
    if not owns.any():
        return start, start.copy()
    # What the tokenizer dropped belongs to the token before it; at the beginning, to the first token.
    first, last = next_visible[start], visible_end[end]
    beginnings = np.unique(first[owns])  # in order, at most T
    num_before = np.searchsorted(beginnings, first, side="right")  # (T,): the index of the next beginning
    next_beginning = np.append(beginnings, len(visible_end) - 1)[np.minimum(num_before, len(beginnings))]
    last = np.maximum(last, visible_end[next_beginning])
    first = np.where(first == beginnings[0], next_visible[0], first)
    return np.where(owns, first, start), np.where(owns, last, start)


def tags_of(spans: Sequence[Span], start: NDArray[Any], end: NDArray[Any], length: int) -> NDArray[np.int8]:
    """Tags each token with NOTHING, OUTSIDE or the number of the label of a span that it shares a character with.

    Of several spans, the one that covers the token's first marked character counts; of several there, the first.

    Args:
        start: The beginnings of the tokens' extents. Shape (T,), like `end`.
        end: Their ends.
        length: The text's length in characters.
    """
    tags = np.where(end > start, OUTSIDE, NOTHING).astype(np.int8)
    if not spans:
        return tags
    marks = np.zeros(length + 1, np.int8)  # (C + 1,): the label of each character
    for span in reversed(spans):  # backwards, so that where spans overlap the first one stays
        marks[span.start : span.end] = _NUMBERS.get(span.label, UNTYPED_TAG)
    num_marked = np.append(0, np.cumsum(marks[:-1] > 0))  # (C + 1,): marked characters before each place
    touched = np.flatnonzero((num_marked[end] > num_marked[start]) & (tags == OUTSIDE))
    for token in touched:
        inside = marks[start[token] : end[token]]
        tags[token] = inside[np.argmax(inside > 0)]  # argmax finds the first marked character
    return tags
