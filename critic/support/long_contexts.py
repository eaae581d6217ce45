"""Chooses the parts of a long context that share most with a response, so that only these are encoded.

Each part is encoded alone, so that a part which serves several responses is encoded once (`ContextCache`).
"""

import re

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_modules.encoding.tokens import make_encodable, text_blocks
from data_modules.encoding.window_choice import PART, divide, rank_parts

MAX_TOKENS = 768  # of a context that is encoded whole, and of the parts of a longer one
SHORT = 3 * MAX_TOKENS  # characters up to which a context has no more tokens in any language that is written in words
SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+|(?<=[。！？])")
Ints = NDArray[np.int64]


def choose_parts(tokenizer: Tokenizer, context: str, question: str, response: str) -> list[str]:
    """Returns the parts of a context that share most tokens with question and response, in their order.

    A context of at most `MAX_TOKENS` is not divided: it has no parts.
    """
    context = make_encodable([context])[0]
    tokens, places = _tokenize(tokenizer, context)
    if len(tokens) <= MAX_TOKENS:
        return []
    begins = [0, *(found.end() for found in SENTENCE_END.finditer(context))]
    start = divide(len(tokens), np.searchsorted(places, begins), PART)
    end = np.append(start[1:], len(tokens))
    asked, _ = _tokenize(tokenizer, make_encodable([f"{question}\n{response}"])[0])
    chosen = np.sort(rank_parts(asked, tokens, start, end, MAX_TOKENS // PART))
    bounds = np.append(places, len(context))
    return [context[bounds[start[part]] : bounds[end[part]]].strip() for part in chosen.tolist()]


def _tokenize(tokenizer: Tokenizer, text: str) -> tuple[NDArray[np.int32], Ints]:
    """Returns the tokens of a text, and the first character of each."""
    ids, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for begin, end in text_blocks(text):
        (encoded,) = tokenizer.encode_batch([text[begin:end]], add_special_tokens=False)  # other threads go on
        ids.append(np.array(encoded.ids, np.int32))
        places.append(begin + np.fromiter((first for first, _ in encoded.offsets), np.int64, len(ids[-1])))
    return np.concatenate(ids), np.concatenate(places)
