"""Features for calibrating a tagger: log-odds of a token and of its sentence, and words that the context lacks.

They add to a token's own log-odds two things that a tagger trained on a few hundred marked answers does not have:

- The mean log-odds of its sentence. Single tokens are noisy, and annotators mark clauses and sentences.
- Whether its word is missing from context and question. An encoder has to learn this; comparing words just shows it.

A logistic regression on validation weighs them (`critic.tagger.fit_calibration`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from critic.requests import Request
from critic.tagger.whole_words import widen_to_words
from faithkit.sentences import sentence_places
from faithkit.words import STOP_WORDS, unicode_words, word_places

TOKEN_EVIDENCE = ("own log-odds", "mean of its sentence", "word not in context", "share of such words in its sentence")
RESPONSE_EVIDENCE = ("worst token", "expected characters", "words not in context", "rate of such words")
FEW_WORDS = 4  # the share of missing words is taken of at least this many, so that short sentences count less
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Words:
    """Word features of each token [tokens each].

    Args:
        missing: 1 where the token's word is a content word that stands neither in the context nor in the question.
        share: Share of such words among the content words of the token's sentence.
        sentence: Number of the token's sentence, counted from 1 over all answers; 0 for a token between sentences.
        begin: First character of the words that the token touches: where a span that it begins begins.
        stop: Behind their last character.
    """

    missing: Floats
    share: Floats
    sentence: Ints
    begin: Ints
    stop: Ints


def words_of(start: Ints, end: Ints, owner: Ints, requests: Sequence[Request]) -> Words:
    """Compares the words of each answer with those of its context and question.

    Args:
        start: First character of each token, in its answer; the tokens of all answers, one answer behind the other.
        end: Behind its last character.
        owner: Number of the request that each token belongs to, ascending.
    """
    missing, share, sentence = np.zeros(len(start)), np.zeros(len(start)), np.zeros(len(start), np.int64)
    bounds = np.searchsorted(owner, np.arange(len(requests) + 1))
    count = 0  # sentences so far; tokens between sentences are invisible and keep 0
    for request, first, last in zip(requests, bounds[:-1], bounds[1:], strict=True):
        have = set(unicode_words(f"{request.knowledge}\n{request.question}"))
        begins = start[first:last]
        for begin, stop in sentence_places(request.response):
            said = [place for place in word_places(request.response, begin, stop) if place[2] not in STOP_WORDS]
            gone = [place for place in said if place[2] not in have]
            own = first + np.arange(*np.searchsorted(begins, [begin, stop]))
            count += 1
            sentence[own] = count
            share[own] = len(gone) / max(len(said), FEW_WORDS)
            for first_character, behind, _ in gone:
                missing[own] = np.maximum(missing[own], (start[own] < behind) & (end[own] > first_character))
    return Words(missing, share, sentence, *widen_to_words(start, end, owner, [one.response for one in requests]))


def token_evidence(odds: Floats, words: Words) -> Floats:
    """The features TOKEN_EVIDENCE of each token [tokens, 4]."""
    count = np.maximum(np.bincount(words.sentence, minlength=1), 1)
    mean = (np.bincount(words.sentence, odds, minlength=1) / count)[words.sentence]
    mean = np.where(words.sentence > 0, mean, odds)
    return np.stack([odds, mean, words.missing, words.share], axis=1)


def worst_tokens(probability: Floats, characters: Ints, owner: Ints, num_responses: int) -> Floats:
    """Finds the highest probability of each response's visible tokens [responses]; 0 without any."""
    counted, worst = characters > 0, np.zeros(num_responses)
    np.maximum.at(worst, owner[counted], probability[counted])
    return worst


def response_evidence(
    odds: Floats, probability: Floats, characters: Ints, owner: Ints, words: Words, num_responses: int
) -> Floats:
    """The features RESPONSE_EVIDENCE of each response [responses, 4].

    Args:
        odds: Log-odds of each token, not calibrated.
        probability: Calibrated, of each token.
        characters: Characters of each token; tokens without any are left out.
        owner: The response of each token.
    """
    counted = characters > 0
    worst = np.full(num_responses, -20.0)  # of a response without a visible token
    np.maximum.at(worst, owner[counted], np.clip(odds[counted], -20.0, 20.0))
    expected = np.bincount(owner[counted], probability[counted] * characters[counted], num_responses)
    missing = np.bincount(owner[counted], words.missing[counted], num_responses)
    size = np.maximum(np.bincount(owner[counted], minlength=num_responses), 1)
    return np.stack([worst, np.log1p(expected), np.log1p(missing), missing / size], axis=1)
