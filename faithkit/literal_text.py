"""Encodes the spelling of special tokens in users' texts as text, never as the tokens themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray


@contextmanager
def literal_text(tokenizer: Any) -> Iterator[Any]:
    """Lends a fast tokenizer's Rust side, which takes special tokens for text as long as it is lent."""
    backend = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        yield backend
    finally:
        backend.encode_special_tokens = before


def without_special(tokenizer: Any, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Makes special tokens unknown ones: a Unigram model maps their spelling to them all the same."""
    unknown, special = tokenizer.unk_token_id, tokenizer.all_special_ids
    if unknown is None or unknown == tokenizer.eos_token_id:
        return ids
    return np.where(np.isin(ids, special), np.int32(unknown), ids)
