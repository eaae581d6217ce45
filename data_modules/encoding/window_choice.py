"""Chooses what a model reads of a long text: the parts that share most tokens with a response.

A part is about `PART` tokens, and begins with a sentence where one begins. A token that few parts have counts more:
ln((parts + 1) / parts with the token). The tokens of a chosen part count no more for the next one, and
parts are chosen until no part adds a token: a part that adds nothing is only more to read
(research/experiments/long_contexts.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import Ints, Ragged, offsets_of
from data_modules.encoding.tokens import Tokenizer

PART = 32
Tokens = NDArray[np.int32]


@dataclass(frozen=True)
class WindowChoice:
    """Chooses windows of long texts.

    Args:
        ends: Tokens that end a sentence.
    """

    ends: Tokens

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "WindowChoice":
        """Finds the tokens that end a sentence."""
        ids = [tokenizer.convert_tokens_to_ids(mark) for mark in ".!?。！？"]
        return cls(np.array([one for one in ids if one not in (None, tokenizer.unk_token_id)], np.int32))

    def choose(
        self, responses: Ragged, texts: Ragged, text: Ints, counts: Ints, start: Ints, size: Ints, most: int
    ) -> tuple[Ints, Ragged]:
        """Chooses what is read of a text for each of R responses.

        At most `most` windows stay as they are. Instead of more, `most` windows of as many tokens are made of the parts
        that share most with the response: the best parts in the first window, in the order of the text.

        Args:
            responses: Tokens of each response (R rows).
            texts: Tokens of the texts.
            text: The text of each response. Shape (R,).
            counts: Windows of each response, one response's behind each other. Shape (R,); they add up to W.
            start: First token of each window in its text. Shape (W,).
            size: Tokens of each window. Shape (W,).

        Returns:
            The numbers of the windows that stay or are replaced, ascending, and the tokens of each.
        """
        keep, shown = list[int](), list[Tokens]()
        for number, (begin, count) in enumerate(zip(offsets_of(counts)[:-1].tolist(), counts.tolist(), strict=True)):
            tokens = texts.row(int(text[number]))
            if count > most:
                windows = self.compose(responses.row(number), tokens, int(size[begin]), most)
            else:
                windows = [tokens[start[at] : start[at] + size[at]] for at in range(begin, begin + count)]
            keep += range(begin, begin + len(windows))
            shown += windows
        lengths = np.array([len(tokens) for tokens in shown], np.int64)
        return np.array(keep, np.int64), Ragged(np.concatenate([np.zeros(0, np.int32), *shown]), offsets_of(lengths))

    def compose(self, response: Tokens, text: Tokens, size: int, most: int) -> list[Tokens]:
        """Makes at most `most` windows, each of at most `size` tokens, of the parts of a text."""
        sentences = 1 + np.flatnonzero(np.isin(text, self.ends))
        start = divide(len(text), sentences, max(1, min(PART, size // 2)))
        lengths = np.diff(start, append=len(text))
        ranked = rank_parts(response, text, start, start + lengths, 2 * most * max(1, size // PART) + most)
        windows: list[Tokens] = []
        while len(ranked) and len(windows) < most:
            fits = np.cumsum(lengths[ranked]) <= size
            window, ranked = np.sort(ranked[fits]), ranked[~fits]
            windows.append(np.concatenate([text[start[part] : start[part] + lengths[part]] for part in window]))
        return windows


def divide(num_tokens: int, sentences: Ints, part: int) -> Ints:
    """Returns the first token of each part: behind every multiple of `part` the next sentence, if one begins soon.

    Args:
        sentences: First tokens of sentences, ascending.
    """
    grid = np.arange(0, num_tokens, part)
    following = np.append(sentences, num_tokens)[np.searchsorted(sentences, grid)]
    following[:1] = 0
    start = np.unique(np.where(following - grid < part, following, grid))
    return start[start < num_tokens]


def rank_parts(response: Tokens, text: Tokens, start: Ints, end: Ints, most: int) -> Ints:
    """Returns one to `most` parts of a text, the one that shares most with the response first; of equals the first.

    Args:
        start: First token of each part, ascending.
        end: The token behind each part, ascending.
    """
    # Which parts have which distinct tokens of the response, by the numbers of both, each pair once.
    tokens = np.unique(response)
    number = np.full(1 + int(max(text.max(initial=0), tokens.max(initial=0))), -1)
    number[tokens] = np.arange(len(tokens))
    place = np.flatnonzero(number[text] >= 0)
    part = np.searchsorted(start, place, side="right") - 1
    inside = place < end[part]
    pairs = np.unique(part[inside] * len(tokens) + number[text[place[inside]]])
    part, token = np.divmod(pairs, max(1, len(tokens)))
    frequency = np.bincount(token)
    weight = np.log((1 + len(start)) / np.maximum(frequency, 1))
    ranked = list[int]()
    while len(ranked) < most:
        shared = np.bincount(part, weight[token], len(start))
        if ranked and shared.max() <= 0:
            break
        ranked.append(int(shared.argmax()))
        weight[token[part == ranked[-1]]] = 0
    return np.array(ranked, np.int64)
