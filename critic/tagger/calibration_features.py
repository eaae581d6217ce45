"""Computes features for the calibration of a tagger: log-odds of a token and of its sentence, and missing words.

They add two things to the log-odds of a token that a tagger trained on a few hundred annotated answers lacks:

- The mean log-odds of its sentence. Single tokens are noisy, and annotators mark clauses and sentences.
- Whether its word is missing from context and question, which an encoder would have to learn.

A logistic regression on validation weighs the features (`critic.tagger.fit_calibration`).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from critic.requests import Request
from data_modules.encoding.ragged import Ragged
from faithkit.words import STOP_WORDS, sentence_places, unicode_words, word_places

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TOKEN_EVIDENCE = ("log-odds", "mean of its sentence", "word not in context", "share of such words in its sentence")
RESPONSE_EVIDENCE = ("worst token", "expected characters", "words not in context", "rate of such words")
MIN_WORDS = 4  # minimum denominator of the share of missing words, so that short sentences count less


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The tokens of several answers, concatenated, with their word features [tokens each].

    Args:
        count: Number of answers; some may have no tokens.
        start: First character of each token, in its answer.
        end: After its last character; equal to `start` for a token without characters.
        odds: Log-odds of hallucinated.
        owner: Number of the token's answer, ascending.
        missing: 1 if the token's word is a content word that is neither in the context nor in the question.
        share: Share of such words among the content words of the token's sentence.
        sentence: Number of the token's sentence, counted from 1 over all answers; 0 for a token between sentences.
        begin: First character of the words that the token overlaps; a span starts there.
        stop: After their last character.
    """

    count: int
    start: Ints
    end: Ints
    odds: Floats
    owner: Ints
    missing: Floats
    share: Floats
    sentence: Ints
    begin: Ints
    stop: Ints

    @classmethod
    def of(cls, requests: Sequence[Request], odds: Floats, start: Ragged, end: Ragged) -> "Answers":
        """Compares the words of each answer with the words of its context and question.

        Args:
            start: First character of each token, a row for each request.
            end: After its last character.
        """
        owner = np.repeat(np.arange(len(requests)), start.lengths)
        starts, ends = start.values.astype(np.int64), end.values.astype(np.int64)
        missing, share, sentence = np.zeros(len(odds)), np.zeros(len(odds)), np.zeros(len(odds), np.int64)
        bounds = np.searchsorted(owner, np.arange(len(requests) + 1))
        count = 0  # sentences so far; tokens between sentences keep 0
        for request, first, last in zip(requests, bounds[:-1], bounds[1:], strict=True):
            known_words = set(unicode_words(f"{request.knowledge}\n{request.question}"))
            begins = starts[first:last]
            for begin, stop in sentence_places(request.response):
                words = [word for word in word_places(request.response, begin, stop) if word[2] not in STOP_WORDS]
                missing_words = [word for word in words if word[2] not in known_words]
                tokens = first + np.arange(*np.searchsorted(begins, [begin, stop]))
                count += 1
                sentence[tokens] = count
                share[tokens] = len(missing_words) / max(len(words), MIN_WORDS)
                for word_begin, word_end, _ in missing_words:
                    overlaps = (starts[tokens] < word_end) & (ends[tokens] > word_begin)
                    missing[tokens] = np.maximum(missing[tokens], overlaps)
        words_begin, words_end = widen_to_words(starts, ends, owner, [request.response for request in requests])
        return cls(
            count=len(requests),
            start=starts,
            end=ends,
            odds=odds,
            owner=owner,
            missing=missing,
            share=share,
            sentence=sentence,
            begin=words_begin,
            stop=words_end,
        )

    @classmethod
    def join(cls, parts: Sequence["Answers"]) -> "Answers":
        """Concatenates answers and renumbers answers and sentences."""
        names = [field.name for field in fields(cls) if field.name != "count"]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        sizes, counts = [len(part.start) for part in parts], [part.count for part in parts]
        sentences = [int(part.sentence.max(initial=0)) for part in parts]
        columns["owner"] += np.repeat(np.cumsum(counts) - counts, sizes)
        columns["sentence"] += (columns["sentence"] > 0) * np.repeat(np.cumsum(sentences) - sentences, sizes)
        return cls(count=sum(counts), **columns)

    @property
    def characters(self) -> Ints:
        """The number of characters of each token; a tokenizer may drop some."""
        return self.end - self.start

    def token_evidence(self) -> Floats:
        """Computes the features TOKEN_EVIDENCE of each token [tokens, 4]."""
        count = np.maximum(np.bincount(self.sentence, minlength=1), 1)
        mean = (np.bincount(self.sentence, self.odds, minlength=1) / count)[self.sentence]
        mean = np.where(self.sentence > 0, mean, self.odds)
        return np.stack([self.odds, mean, self.missing, self.share], axis=1)

    def worst(self, probability: Floats) -> Floats:
        """Computes the highest probability of each answer's visible tokens [answers]; 0 without tokens."""
        counted, worst = self.characters > 0, np.zeros(self.count)
        np.maximum.at(worst, self.owner[counted], probability[counted])
        return worst

    def response_evidence(self, probability: Floats) -> Floats:
        """Computes the features RESPONSE_EVIDENCE of each answer from its visible tokens [answers, 4].

        Args:
            probability: Calibrated probability of each token.
        """
        counted = self.characters > 0
        owner = self.owner[counted]
        worst = np.full(self.count, -20.0)  # for an answer without visible tokens
        np.maximum.at(worst, owner, np.clip(self.odds[counted], -20.0, 20.0))
        expected = np.bincount(owner, probability[counted] * self.characters[counted], self.count)
        missing = np.bincount(owner, self.missing[counted], self.count)
        size = np.maximum(np.bincount(owner, minlength=self.count), 1)
        return np.stack([worst, np.log1p(expected), np.log1p(missing), missing / size], axis=1)


def widen_to_words(start: Ints, end: Ints, owner: Ints, texts: Sequence[str]) -> tuple[Ints, Ints]:
    """Extends each token to the boundaries of the words that it overlaps [tokens each].

    A word is a run of letters, digits and marks, including apostrophes ("don't") and numbers ("1,250.5").

    Args:
        start: First character of each token in its text; a token with `start == end` is unchanged.
        end: After its last character.
        owner: The text of each token, ascending.
    """
    wide_start, wide_end = start.copy(), end.copy()
    bounds = np.searchsorted(owner, np.arange(len(texts) + 1))
    for text, first, last in zip(texts, bounds[:-1], bounds[1:], strict=True):
        words = np.array([match.span() for match in _word().finditer(text)], np.int64).reshape(-1, 2)
        visible = np.arange(first, last)[end[first:last] > start[first:last]]
        if not len(words) or not len(visible):
            continue
        begins, ends = words.T
        # The first word that ends after the token's start, and the last word that begins before its end.
        first_word = np.minimum(np.searchsorted(ends, start[visible], "right"), len(words) - 1)
        inside = (begins[first_word] < start[visible]) & (start[visible] < ends[first_word])
        wide_start[visible[inside]] = begins[first_word[inside]]
        last_word = np.maximum(np.searchsorted(begins, end[visible], "left") - 1, 0)
        inside = (begins[last_word] < end[visible]) & (end[visible] < ends[last_word])
        wide_end[visible[inside]] = ends[last_word[inside]]
    return wide_start, wide_end


@cache
def _word() -> re.Pattern[str]:
    # Thai, Lao, Burmese, Khmer, kana, Han: written without spaces, so a run of characters is not a word.
    unspaced = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    joiners = "\u200c\u200d"  # within words of Persian and of Indian scripts
    marks = "".join(c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c) in ("Mn", "Mc"))
    letters = f"(?:(?![{unspaced}])[\\w{marks}{joiners}])+"
    return re.compile(rf"\d+(?:[.,]\d+)+(?!\w)|{letters}(?:['’]{letters})*")
