"""Computes features of each word of a response: how well the context supports it, and what contradicts it.

A word can occur in the context and still be wrong: the dose for children given for adults. So each value (a number with
its unit, a date, a name, a word) is compared with its *rivals*, the other values of its kind in the context. The place
of a value in the context fits if the other words of the response, and those of the question, are near it:

    fit of context word k for response word i = weighted mean over other words j of max over k' of
                                                cos(state of j, state of k') exp(-distance of k and k' / 8)

Commas, clause words and sentence ends make the distance longer. The *margin* is the fit of the best rival less the fit
of the value.

Every sentence of the response is matched with the sentence of the context whose words are closest. Negations,
opposites, quantifiers and modals are compared within this pair.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from critic.support.normal_forms import (
    ANSWER,
    CLAUSE_WORDS,
    CONTENT,
    DATE,
    MODAL,
    NAME,
    NEGATION,
    NUMBER,
    QUANTIFIER,
    STOP,
    UNIT,
    WORD,
    Quantity,
    Word,
    opposites,
    read_quantities,
)
from critic.support.values import Pair

WORD_KINDS = (ANSWER, WORD, NAME, NUMBER, DATE, UNIT, NEGATION, QUANTIFIER, MODAL)
VALUES = (WORD, NAME, NUMBER, DATE, UNIT)
FEATURES = (
    "closest word",
    "closest word of the matched sentence",
    "closest equal word",
    "in the context",
    "in the matched sentence",
    "known 4-grams",
    "in the question",
    "neither in the context nor in the question",
    "value in the context",
    "has rivals",
    "fit of the value",
    "fit of the best rival, value absent",
    "margin",
    "unit of no such quantity",
    "number of no such quantity",
    "negated on one side",
    "negated in the response only",
    "negated in the context only",
    "opposite in the matched sentence",
    "opposite in the context",
    "opposite with equal negation",
    "sentences differ in negation",
    "response sentence negated only",
    "context sentence negated only",
    "other quantifier",
    "quantifier without counterpart",
    "other modal",
    *(
        f"sentence: {name}"
        for name in ("match", "words in match", "words in context", "mean closeness", "least closeness", "words")
    ),
    *(f"kind: {kind}" for kind in WORD_KINDS),
    *(f"{kind}: {name}" for name in ("absent", "elsewhere", "margin", "closest word") for kind in VALUES),
    "length of the response",
    "value that the context does not have",
    "value of the context",
    "value of the context near the same words",
)

RANGE, DECAY = 10, 8.0  # words on each side that decide the fit of a place; distance at which their weight is 1/e
CLAUSE, PHRASE, SENTENCE = 4.0, 2.0, 8.0  # how many words a clause word, a comma and a sentence end count as
QUESTION_WEIGHT = 0.3  # of a question's word in the fit; a neighbour in the response has up to 1
SCOPE = 4  # words behind a negation that it negates
ALIGNED = 0.55  # cosine from which two words are counterparts
RELATED = 0.4  # cosine from which a context word is a rival of a word
MAX_CHARACTERS = 1000  # longer words are cut before their character n-grams are compared
EQUAL_WORDS = 0.3  # weight of equal words in the match of sentences
Floats = NDArray[np.float64]
States = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Encoded:
    """The words of a text and their unit-length states [words, hidden].

    What an alignment reads of a context is computed once, since contexts are kept between calls.
    """

    words: Sequence[Word]
    states: States

    @cached_property
    def norms(self) -> NDArray[np.object_]:
        """The normal form of each word."""
        return np.array([word.norm for word in self.words], object)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The normal forms."""
        return frozenset(self.norms.tolist())

    @cached_property
    def grams(self) -> frozenset[str]:
        """The 4-grams of the words."""
        return frozenset(gram for word in self.words for gram in _grams(word.lower))

    @cached_property
    def sentence_starts(self) -> NDArray[np.intp]:
        """The place of the first word of each sentence."""
        sentences = np.array([word.sentence for word in self.words])
        return np.flatnonzero(np.r_[True, sentences[1:] != sentences[:-1]])

    @cached_property
    def places(self) -> dict[str, NDArray[np.intp]]:
        """The places of the words of each kind."""
        kinds = np.array([word.kind for word in self.words], object)
        return {kind: np.flatnonzero(kinds == kind) for kind in CONTENT}

    @cached_property
    def quantities(self) -> dict[int, Quantity]:
        """The quantity of each number."""
        return read_quantities(list(self.words))

    @cached_property
    def negated(self) -> list[bool]:
        """Whether a negation is at most SCOPE words before each word in its sentence."""
        words = self.words
        return [
            any(other.kind == NEGATION and other.sentence == word.sentence for other in words[max(0, n - SCOPE) : n])
            for n, word in enumerate(words)
        ]

    @cached_property
    def decays(self) -> list[Floats]:
        """The weights of the words that are one word, two, ... and RANGE words behind each word."""
        position = _positions(self.words, sentence_ends=True)
        steps = range(1, min(RANGE, len(self.words) - 1) + 1)
        return [np.exp(-(position[step:] - position[:-step]) / DECAY) for step in steps]


@dataclass(frozen=True, slots=True)
class Match:
    """A sentence of the response, and the sentence of the context that it is matched with.

    Args:
        content: Places of its content words.
        first: Place of the first word of the matched sentence in the context.
        end: After its last word.
        number: The number of the matched sentence.
        features: Those of FEATURES that begin with "sentence: ", in their order.
        is_negated: The sentence of the response has a negation.
        norms: The normal forms in the matched sentence, by kind.
    """

    content: list[int]
    first: int
    end: int
    number: int
    features: tuple[float, ...]
    is_negated: bool
    norms: dict[str, set[str]]


class Alignment:
    """The alignment of a response with its context.

    Args:
        pairs: The values of the response, compared with those of the context.
        knowledge: The text of the context.
        parts: The parts of it that were encoded.

    Attributes:
        places: The places of the response's words that are no stop words.
        features: Their FEATURES [words, features].
    """

    def __init__(
        self,
        context: Encoded,
        question: Encoded,
        response: Encoded,
        *,
        pairs: Sequence[Pair] = (),
        knowledge: str = "",
        parts: Sequence[str] = (),
    ):
        if not context.words:
            context = Encoded([Word(0, 0, "", "", STOP, 0)], np.zeros((1, response.states.shape[1]), np.float32))
        self.context, self.response, self.pairs = context, response, pairs
        self.knowledge, self.parts = knowledge, parts
        self.words = response.words
        self.closeness = response.states @ context.states.T  # [response words, context words]
        self.equal = response.norms[:, None] == context.norms[None]
        starts = context.sentence_starts
        self.in_sentence = np.maximum.reduceat(self.closeness, starts, axis=1)  # [response words, sentences]
        self.equal_in_sentence = np.logical_or.reduceat(self.equal, starts, axis=1)
        self.asked = [place for place, word in enumerate(question.words) if word.kind in CONTENT]
        self.asked_norms = question.vocabulary
        self.asked_closeness = question.states[self.asked] @ context.states.T
        closeness = np.concatenate([self.closeness, self.asked_closeness])
        # The closeness of each word of response and question to the surroundings of each context word.
        self.near = closeness.copy()
        for step, weight in enumerate(context.decays, 1):
            np.maximum(self.near[:, :-step], closeness[:, step:] * weight, out=self.near[:, :-step])
            np.maximum(self.near[:, step:], closeness[:, :-step] * weight, out=self.near[:, step:])
        self.distance = _positions(response.words, sentence_ends=False)
        numbers = sorted({word.sentence for word in response.words})
        self.matches = {number: self._match(number) for number in numbers}
        ends = [word.end for word in response.words]
        self.pair_of = dict[int, Pair]()  # of each word that is part of a compared value, the first such pair
        for pair in pairs:
            place = bisect_right(ends, pair.value.start)
            while place < len(ends) and response.words[place].start < pair.value.end:
                self.pair_of.setdefault(place, pair)
                place += 1
        self.places = [place for place, word in enumerate(response.words) if word.kind != STOP]
        self.length = math.log1p(len(self.places))
        rows = [self._word_features(place) for place in self.places]
        self.features = np.array(rows, np.float64).reshape(len(self.places), len(FEATURES))

    def _word_features(self, place: int) -> list[float]:
        """Computes the FEATURES of one word."""
        pair = self.pair_of.get(place)
        is_known = pair is not None and not pair.is_unsupported
        word, match = self.words[place], self.matches[self.words[place].sentence]
        known, in_match = bool(self.equal[place].any()), bool(self.equal_in_sentence[place, match.number])
        closest = float(self.closeness[place].max())
        exists, has_rivals, fit, rival_fit = False, False, 0.0, 0.0
        others = [other for other in match.content if other != place]
        if word.kind in CONTENT and (others or self.asked):
            same, rivals = self.find_rivals(place, match)
            fits = self.fit(place, others)
            exists, has_rivals = bool(same), bool(rivals)
            fit, rival_fit = best_fit(fits, same), best_fit(fits, rivals)
        margin = rival_fit - fit if exists and has_rivals else 0.0
        asked = word.norm in self.asked_norms
        grams = _grams(word.lower)
        kinds = [float(word.kind == kind) for kind in WORD_KINDS]
        values = [float(word.kind == kind) for kind in VALUES]
        crossed = (not known, known and not in_match, margin, closest)
        return [
            closest,
            float(self.in_sentence[place, match.number]),
            float(self.closeness[place][self.equal[place]].max()) if known else 0.0,
            known,
            in_match,
            sum(gram in self.context.grams for gram in grams) / len(grams),
            asked,
            not known and not asked,
            exists,
            has_rivals,
            fit,
            0.0 if exists else rival_fit,
            margin,
            word.kind == UNIT and not exists and has_rivals,
            word.kind == NUMBER and not exists,
            *self._compare_polarity(place, match),
            *match.features,
            *kinds,
            *(float(value) * kind for value in crossed for kind in values),
            self.length,
            pair is not None and pair.is_unsupported,
            is_known,
            is_known and pair is not None and pair.shares_head,
        ]

    def _match(self, number: int) -> Match:
        """Matches a sentence of the response with the sentence of the context whose words are closest."""
        places = [place for place, word in enumerate(self.words) if word.sentence == number]
        content = [place for place in places if self.words[place].kind in CONTENT]
        starts, context = self.context.sentence_starts, self.context.words
        best, features = 0, (0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
        if content:
            score = self.in_sentence[content].mean(0) + EQUAL_WORDS * self.equal_in_sentence[content].mean(0)
            if self.asked:
                asked = np.maximum.reduceat(self.asked_closeness, starts, axis=1).mean(0)
                score = score + asked * (2 / (2 + len(content)))
            best = int(score.argmax())
            closest = self.closeness[content].max(1)
            features = (
                float(self.in_sentence[content, best].mean()),
                float(self.equal_in_sentence[content, best].mean()),
                float(self.equal[content].any(1).mean()),
                float(closest.mean()),
                float(closest.min()),
                math.log1p(len(content)),
            )
        first = int(starts[best])
        end = int(starts[best + 1]) if best + 1 < len(starts) else len(context)
        is_negated = any(self.words[place].kind == NEGATION for place in places)
        matched = context[first:end]
        norms = {kind: {word.norm for word in matched if word.kind == kind} for kind in WORD_KINDS}
        return Match(content, first, end, best, features, is_negated, norms)

    def fit(self, place: int, others: Sequence[int]) -> Floats:
        """Computes how well a word of the response fits the place of each word of the context [context words]."""
        near = [1 / (1 + abs(self.distance[place] - self.distance[other]) / 2) for other in others]
        weights = np.array(near + [QUESTION_WEIGHT] * len(self.asked))
        rows = [*others, *range(len(self.words), len(self.words) + len(self.asked))]
        fit: Floats = (weights / weights.sum()) @ self.near[rows]
        return fit

    def find_rivals(self, place: int, match: Match) -> tuple[list[int], list[int]]:
        """Finds the places of a value in the context, and those of its rivals."""
        word = self.words[place]
        here, there, context = self.response.quantities, self.context.quantities, self.context.words
        if word.kind == NUMBER:
            quantity = here[place]
            same = [
                other
                for other, found in there.items()
                if found.equals(quantity) or (context[other].norm == word.norm and not (found.unit and quantity.unit))
            ]
            return same, [  # of the same dimension; without a unit, other numbers
                other
                for other, found in there.items()
                if context[other].norm != word.norm
                and not found.equals(quantity)
                and (not quantity.unit or found.dimension == quantity.dimension)
            ]
        if word.kind == UNIT:
            number = next((near for near in (place - 1, place - 2, place + 1) if near in here), None)
            if number is not None:
                quantity, norm = here[number], self.words[number].norm
                same = [other for other, found in there.items() if found.equals(quantity)]
                return same, [
                    other
                    for other, found in there.items()
                    if found.unit and context[other].norm == norm and not found.equals(quantity)
                ]
        same = np.flatnonzero(self.equal[place]).tolist()
        used = {word.norm} | {self.words[o].norm for o in match.content if word.kind in (WORD, NAME)}
        rivals = self.context.places[word.kind]
        if word.kind == WORD:
            rivals = rivals[self.closeness[place, rivals] > RELATED]
        return same, [other for other in rivals.tolist() if context[other].norm not in used]

    def _compare_polarity(self, place: int, match: Match) -> tuple[float, ...]:
        """Compares negations, opposites, quantifiers and modals of the matched sentences around a word."""
        word = self.words[place]
        counterpart = match.first + int(self.closeness[place, match.first : match.end].argmax())
        closeness = max(0.0, float(self.closeness[place, counterpart]))
        here, there = self.response.negated[place], self.context.negated[counterpart]
        differs = closeness > ALIGNED and here != there
        words = match.norms[WORD] | match.norms[NAME]
        is_opposite = word.kind in (WORD, NAME) and not bool(self.equal_in_sentence[place, match.number])
        is_opposite = is_opposite and not words.isdisjoint(opposites(word.norm))
        is_opposite_anywhere = (
            word.kind == WORD
            and word.norm not in self.context.vocabulary
            and not self.context.vocabulary.isdisjoint(opposites(word.norm))
        )
        negated_here, negated_there = match.is_negated, bool(match.norms[NEGATION])
        quantifiers, modals = match.norms[QUANTIFIER], match.norms[MODAL]
        return (
            closeness * differs,
            differs and here,
            differs and there,
            is_opposite,
            is_opposite_anywhere,
            is_opposite and not differs,
            negated_here != negated_there,
            negated_here and not negated_there,
            negated_there and not negated_here,
            word.kind == QUANTIFIER and bool(quantifiers) and word.norm not in quantifiers,
            word.kind == QUANTIFIER and not quantifiers,
            word.kind == MODAL and bool(modals) and word.norm not in modals,
        )


def best_fit(fit: Floats, places: Sequence[int]) -> float:
    """Returns the best fit of these places of the context; 0 where there are none."""
    return float(fit[places].max()) if places else 0.0


def _grams(word: str) -> list[str]:
    word = word[:MAX_CHARACTERS]
    return [word] if len(word) < 4 else [word[i : i + 4] for i in range(len(word) - 3)]


def _positions(words: Sequence[Word], *, sentence_ends: bool) -> Floats:
    """Counts words from the start; clause words, commas and, if wanted, sentence ends count as several."""
    steps = [1 + CLAUSE * (word.lower in CLAUSE_WORDS) + PHRASE * word.after_break for word in words]
    if sentence_ends:
        for place in range(1, len(words)):
            steps[place] += SENTENCE * (words[place].sentence != words[place - 1].sentence)
    return np.cumsum(steps)
