"""Computes the states of words with an encoder that is not fine-tuned."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from critic.runtime.last_layer import without_last_layer
from critic.support.alignment import Encoded, Floats, compute_features
from critic.support.normal_forms import Word, read_words
from critic.token_support import TokenSupport
from data_modules.encoding.tokens import Tokenizer, tokenize_with_offsets

MIN_NORM = 1e-6


class WordEncoder:
    """Encodes texts: words, and for each the mean state of its tokens in the second-to-last layer, of unit length.

    Args:
        model: An encoder of transformers.
        batch_tokens: Tokens of a batch; changes the speed, not the results.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, *, batch_tokens: int):
        self.tokenizer = tokenizer
        self.support = TokenSupport.of(without_last_layer(model), tokenizer, batch_tokens=batch_tokens)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encodes each text; equal texts are encoded once."""
        unique = list(dict.fromkeys(texts))
        tokens, offsets = tokenize_with_offsets(self.tokenizer, unique)
        words = [read_words(text) for text in unique]
        owners = [_find_owners(of_text, places) for of_text, places in zip(words, offsets, strict=True)]
        sums = [np.zeros((len(of_text), self.support.model.config.hidden_size), np.float32) for of_text in words]
        ids = {number: tokens.row(number) for number in range(len(unique))}
        for number, start, states in self.support.encode_windows(ids):
            owner = owners[number][start : start + len(states)]
            np.add.at(sums[number], owner[owner >= 0], states.cpu().numpy()[owner >= 0])
        encoded = {
            text: Encoded(of_text, total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), MIN_NORM))
            for text, of_text, total in zip(unique, words, sums, strict=True)
        }
        return [encoded[text] for text in texts]


def encode_and_align(
    encoder: WordEncoder, texts: Sequence[tuple[str, str, str]]
) -> list[tuple[Encoded, list[int], Floats]]:
    """Encodes context, question and response of each row, and computes the features of the response's words.

    The response is encoded behind the question, so that the states of a short answer depend on it.
    """
    encoded = encoder.encode(
        [text for context, question, response in texts for text in (context, join(question, response))]
    )
    rows = []
    for number, (_, question, _) in enumerate(texts):
        context, both = encoded[2 * number : 2 * number + 2]
        asked, response = split(both, len(join(question, "")))
        rows.append((response, *compute_features(context, asked, response)))
    return rows


def join(question: str, response: str) -> str:
    """Joins a question and a response to the text that is encoded."""
    return f"{question}\n{response}" if question else response


def split(both: Encoded, start: int) -> tuple[Encoded, Encoded]:
    """Splits the words of a joined text at the first character of the response, whose places then count from 0."""
    count = sum(word.start < start for word in both.words)
    words = [replace(word, start=word.start - start, end=word.end - start) for word in both.words[count:]]
    return Encoded(both.words[:count], both.states[:count]), Encoded(words, both.states[count:])


def _find_owners(words: Sequence[Word], offsets: Sequence[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Finds the word of each token by its first character; -1 for a token outside all words."""
    starts, ends = (np.array([getattr(word, side) for word in words] or [0]) for side in ("start", "end"))
    first = np.array([begin for begin, _ in offsets], np.intp)
    owner = np.searchsorted(starts, first, side="right") - 1
    inside = (owner >= 0) & (first < ends[owner]) & (np.array([end > begin for begin, end in offsets], bool))
    return np.where(inside, owner, -1)
