"""Text to token ids, every distinct text once.

Dialogue corpora repeat themselves: a turn stands in the history of every later turn, a knowledge sentence under several
responses. Segments are therefore tokenised on their own, each distinct one a single time, and sequences are put
together from their ids. For every fast tokenizer this equals tokenising the pair, because it treats the two texts
separately and then adds its special tokens (tested against the tokenizer's own pair encoding).
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_modules.ragged import Ragged

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
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    # A lone surrogate cannot reach the Rust side: the model sees a question mark in its place.
    unique = [text.encode(errors="replace").decode() if _has_surrogate(text) else text for text in position]
    encoded = backend.encode_batch_fast(unique, add_special_tokens=False)
    return Ragged.from_lists(encoding.ids for encoding in encoded).take(rows)


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
