"""The tokens of several answers with log-odds and features, which a tagger's calibration is fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from critic.requests import Request
from critic.tagger.calibration_features import Words, response_evidence, words_of, worst_tokens
from data_modules.encoding.ragged import Ragged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answers:
    """The tokens of several answers, concatenated.

    Args:
        start: First character of each token, in its answer [tokens].
        end: After its last character [tokens].
        odds: Log-odds of hallucinated [tokens].
        owner: The answer of each token, ascending [tokens].
        words: Word features and the sentence of each token.
    """

    start: Ints
    end: Ints
    odds: Floats
    owner: Ints
    words: Words

    @classmethod
    def of(cls, requests: Sequence[Request], odds: Floats, start: Ragged, end: Ragged) -> "Answers":
        """Makes the answers of requests from the log-odds and offsets of their tokens.

        Args:
            start: First character of each token, a row for each request.
            end: After its last character.
        """
        owner = np.repeat(np.arange(len(requests)), start.lengths)
        starts, ends = start.values.astype(np.int64), end.values.astype(np.int64)
        return cls(starts, ends, odds, owner, words_of(starts, ends, owner, requests))

    @classmethod
    def empty(cls) -> "Answers":
        """Returns no answers."""
        none = np.zeros(0, np.int64)
        return cls(none, none, np.zeros(0), none, words_of(none, none, none, []))

    @property
    def characters(self) -> Ints:
        """The number of characters of each token; a tokenizer may drop some."""
        return self.end - self.start

    @classmethod
    def join(cls, parts: Sequence["Answers"], sizes: Sequence[int]) -> "Answers":
        """Concatenates answers and renumbers answers and sentences.

        Args:
            sizes: Number of answers of each part.
        """
        offsets = np.append(0, np.cumsum(sizes))
        sentence_offsets = np.append(0, np.cumsum([int(part.words.sentence.max(initial=0)) for part in parts]))
        sentence = [
            np.where(p.words.sentence > 0, p.words.sentence + n, 0)
            for p, n in zip(parts, sentence_offsets, strict=False)
        ]
        return cls(
            start=np.concatenate([part.start for part in parts]),
            end=np.concatenate([part.end for part in parts]),
            odds=np.concatenate([part.odds for part in parts]),
            owner=np.concatenate([part.owner + n for part, n in zip(parts, offsets, strict=False)]),
            words=Words(
                np.concatenate([part.words.missing for part in parts]),
                np.concatenate([part.words.share for part in parts]),
                np.concatenate(sentence),
                np.concatenate([part.words.begin for part in parts]),
                np.concatenate([part.words.stop for part in parts]),
            ),
        )

    def responses(self, probability: Floats, num_responses: int) -> Floats:
        """Computes the features RESPONSE_EVIDENCE of each answer."""
        return response_evidence(self.odds, probability, self.characters, self.owner, self.words, num_responses)

    def worst(self, probability: Floats, num_responses: int) -> Floats:
        """Computes the highest probability of each answer's tokens."""
        return worst_tokens(probability, self.characters, self.owner, num_responses)
