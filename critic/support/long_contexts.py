"""Chooses the parts of a long context that share most with a response, so that only these are encoded.

Each part is encoded alone, so that a part which serves several responses is encoded once (`ContextCache`).
"""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_modules.encoding.tokens import make_encodable
from data_modules.encoding.window_choice import best_windows

MAX_TOKENS = 768  # of a context that is encoded whole, and of the parts of a longer one
PART = 96  # tokens of a part
SHORT = 3 * MAX_TOKENS  # characters up to which a context has no more tokens in any language that is written in words
BLOCK = 2**20  # characters that are tokenised at a time
SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+|(?<=[。！？])")
Ints = NDArray[np.int64]


def choose_parts(tokenizer: Tokenizer, context: str, question: str, response: str) -> list[str]:
    """Returns the parts of a context that share most tokens with question and response, in their order.

    A context of at most `MAX_TOKENS` is one part.
    """
    context = make_encodable([context])[0]
    tokens, places = _tokenize(tokenizer, context)
    if len(tokens) <= MAX_TOKENS:
        return [context]
    begins = [0, *(found.end() for found in SENTENCE_END.finditer(context))]
    start = _divide(len(tokens), np.searchsorted(places, begins))
    end = np.append(start[1:], len(tokens))
    asked, _ = _tokenize(tokenizer, make_encodable([f"{question}\n{response}"])[0])
    chosen = best_windows(asked, tokens, start, end, MAX_TOKENS // PART)
    bounds = np.append(places, len(context))
    return [context[bounds[start[part]] : bounds[end[part]]].strip() for part in chosen.tolist()]


def _divide(num_tokens: int, sentences: Ints) -> Ints:
    """Returns the first token of each part: near every multiple of `PART` the next sentence, if one begins there."""
    grid = np.arange(0, num_tokens, PART)
    following = np.append(sentences, num_tokens)[np.searchsorted(sentences, grid)]
    start = np.unique(np.where(following - grid < PART, following, grid))
    return start[start < num_tokens]


def _tokenize(tokenizer: Tokenizer, text: str) -> tuple[NDArray[np.int32], Ints]:
    """Returns the tokens of a text, and the first character of each."""
    ids, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for begin, end in _blocks(text):
        encoded = tokenizer.encode(text[begin:end], add_special_tokens=False)
        ids.append(np.array(encoded.ids, np.int32))
        places.append(begin + np.fromiter((first for first, _ in encoded.offsets), np.int64, len(ids[-1])))
    return np.concatenate(ids), np.concatenate(places)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Divides a text before a space about every `BLOCK` characters."""
    begin = 0
    while begin < len(text):
        space = text.find(" ", begin + BLOCK)
        end = space if 0 <= space < begin + 2 * BLOCK else min(len(text), begin + 2 * BLOCK)
        yield begin, end
        begin = end
