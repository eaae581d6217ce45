"""Text to token ids, every distinct text once, and of the distinct texts every distinct word once.

Dialogue corpora repeat themselves: a turn stands in the history of every later turn, a knowledge sentence under several
responses. Segments are therefore tokenised on their own, each distinct one a single time, and sequences are put
together from their ids. For every fast tokenizer this equals tokenising the pair, because it treats the two texts
separately and then adds its special tokens (tested against the tokenizer's own pair encoding).

The tokenizers of BERT and of GPT-2 (RoBERTa's too) cut at every space before they look for pieces, so a word's ids
do not depend on its neighbours: there the same is done with words, which repeat far more often than texts do.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from data_modules.encoding.ragged import Ragged, offsets_of

Tokenizer = (
    Any  # transformers.PreTrainedTokenizerFast; not imported here, because scripts start before transformers loads
)


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """The special tokens of a pair: prefix, first, middle, second, suffix; and the type ids of the two halves."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    typed: bool

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "PairTemplate":
        """Reads the template off an encoded pair of one-token texts."""
        first, second = _two_single_token_texts(tokenizer)
        (first_id,) = tokenizer(first, add_special_tokens=False)["input_ids"]
        (second_id,) = tokenizer(second, add_special_tokens=False)["input_ids"]
        encoded = tokenizer(first, second, return_token_type_ids=True)
        ids = list(encoded["input_ids"])
        at, then = ids.index(first_id), len(ids) - 1 - ids[::-1].index(second_id)
        typed = "token_type_ids" in tokenizer.model_input_names and max(encoded["token_type_ids"]) == 1
        return cls(tuple(ids[:at]), tuple(ids[at + 1 : then]), tuple(ids[then + 1 :]), typed)


def _two_single_token_texts(tokenizer: Tokenizer) -> tuple[str, str]:
    found: list[str] = []
    for text in "abcdefghijklmnopqrstuvwxyz0123456789":
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1:
            found.append(text)
        if len(found) == 2:
            return found[0], found[1]
    raise ValueError("the tokenizer gives no single token for any letter or digit")


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
    """Token ids of each text, without special tokens; distinct texts are tokenised once."""
    position: dict[str, int] = {}
    rows = np.fromiter((position.setdefault(text, len(position)) for text in texts), np.int64, len(texts))
    backend = _plain_backend(tokenizer)
    unique = _readable(position)
    mark = _space_mark(backend)
    ids = _encode(backend, unique) if mark is None else _encode_by_words(backend, unique, mark)
    return ids.take(rows)


def tokenize_with_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Ragged, list[list[tuple[int, int]]]]:
    """Token ids of each text, without special tokens, and the characters that each token claims."""
    backend = _plain_backend(tokenizer)
    encoded = backend.encode_batch(_readable(texts), add_special_tokens=False)
    return Ragged.from_lists([e.ids for e in encoded]), [e.offsets for e in encoded]


def _plain_backend(tokenizer: Tokenizer) -> Any:
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def _readable(texts: Iterable[str]) -> list[str]:
    # A lone surrogate cannot reach the Rust side: the model sees a question mark in its place.
    return [text.encode(errors="replace").decode() if _has_surrogate(text) else text for text in texts]


def _encode(backend: Any, texts: Sequence[str]) -> Ragged:
    return Ragged.from_lists([e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=False)])


def _encode_by_words(backend: Any, texts: Sequence[str], mark: str) -> Ragged:
    position: defaultdict[str, int] = defaultdict(count().__next__)
    words: list[int] = []
    ends = np.empty(len(texts), np.int64)
    for row, text in enumerate(texts):
        words += map(position.__getitem__, _words(text, mark))
        ends[row] = len(words)
    flat = _encode(backend, list(position)).take(np.array(words, np.int64))
    return Ragged(flat.values, flat.offsets[offsets_of(np.diff(ends, prepend=0))])


def _words(text: str, mark: str) -> list[str]:
    if mark and " ".join(text.split()) != text:
        return [text]  # a run of white space is cut by rules of its own
    return text.replace(" ", "\n" + mark).split("\n") if mark else text.split(" ")


def _space_mark(backend: Any) -> str | None:
    """What a word keeps of the space before it; None for a tokenizer that may look beyond a space."""
    from tokenizers import normalizers, pre_tokenizers

    before, cut = backend.normalizer, backend.pre_tokenizer
    if any(token.rstrip or " " in token.content for token in backend.get_added_tokens_decoder().values()):
        return None
    if isinstance(cut, pre_tokenizers.BertPreTokenizer):
        return "" if before is None or isinstance(before, normalizers.BertNormalizer) else None
    return " " if before is None and isinstance(cut, pre_tokenizers.ByteLevel) and cut.use_regex else None


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def fingerprint_of(tokenizer: Tokenizer) -> str:
    """Equal for tokenizers that give equal ids: a hash of all that the fast tokenizer is made of."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state.pop("truncation", None)
    state.pop("padding", None)
    return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()


def load_tokenizer(folder_or_name: str) -> Tokenizer:
    """The fast tokenizer of a folder or hub name; never runs code from there."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder_or_name, trust_remote_code=False)
