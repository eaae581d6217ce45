"""Converts a tagger's log-odds to probabilities, spans and labels; fitted on validation, stored with the weights.

`Settings` has the calibration and what else is stored.

Its features add two things to the log-odds of a token that a tagger trained on a few hundred annotated answers lacks:

- The mean log-odds of its sentence. Single tokens are noisy, and annotators mark clauses and sentences.
- Whether its word is missing from context and question, which an encoder would have to learn.

A logistic regression on validation weighs the features (`critic.tagger.task`).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from critic.runtime import Request
from critic.weights import HEAD, Line
from data_modules.encoding.encoder import Ragged
from faithkit.calibration import ResponseThreshold, linear, sigmoid
from faithkit.detector import TAGGER
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from faithkit.records import FAITHFUL, HALLUCINATED, SPAN_TYPES
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import Count, Range, Share, Sizes, Switch, Tokens, Weight, Weights
from faithkit.words import STOP_WORDS, sentence_places, unicode_words, word_places

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TOKEN_EVIDENCE = ("log-odds", "mean of its sentence", "word not in context", "share of such words in its sentence")
RESPONSE_EVIDENCE = ("worst token", "expected characters", "words not in context", "rate of such words")
MIN_WORDS = 4  # minimum denominator of the share of missing words, so that short sentences count less
MAX_CHARACTERS = 100_000  # far above fitted values


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


@dataclass(frozen=True, slots=True)
class FoundSpans:
    """Spans in the order of the text [spans each].

    Args:
        start: First character.
        end: After the last character.
        first: First token.
        last: Last token.
    """

    start: Ints
    end: Ints
    first: Ints
    last: Ints


def find_spans(
    start: Ints,
    end: Ints,
    probability: Floats,
    owner: Ints,
    *,
    threshold: float,
    merge_gap: int = 0,
    min_length: int = 1,
) -> FoundSpans:
    """Finds runs of tokens with at least the threshold, including the white space between them.

    Args:
        start: First character of each token, in order; equal to `end` for a token without characters.
        owner: The text of each token; a span never crosses texts.
        merge_gap: Spans with at most this many characters between them become one.
        min_length: Spans of fewer characters are dropped, after merging.
    """
    visible = np.flatnonzero(end > start)
    above = np.flatnonzero(probability[visible] >= threshold)
    if not len(above):
        empty = np.zeros(0, np.int64)
        return FoundSpans(empty, empty, empty, empty)
    tokens = visible[above]
    starts, ends = start[tokens], end[tokens]
    is_joined = (np.diff(above) == 1) | (starts[1:] - ends[:-1] <= merge_gap)
    is_joined &= owner[tokens[1:]] == owner[tokens[:-1]]
    begins = np.flatnonzero(np.append(True, ~is_joined))
    lasts = np.append(begins[1:], len(tokens)) - 1
    found_end = np.maximum.reduceat(ends, begins)
    keep = found_end - starts[begins] >= min_length
    return FoundSpans(starts[begins][keep], found_end[keep], tokens[begins][keep], tokens[lasts][keep])


@options()
class SpanCalibration:
    """Parameters and steps of a tagger's calibration.

    Args:
        slope: Calibrated log-odds of a token are `slope * log-odds + bias` (Platt scaling).
        token_weights: Weights of TOKEN_EVIDENCE (`critic.tagger.span_calibration`) and a bias, which replace slope
            and bias; may be empty.
        char_threshold: Calibrated probability from which characters of a hallucinated response are marked.
        merge_gap: Spans with at most this many characters between them are merged.
        min_length: Spans with fewer characters are dropped.
        response_weights: Weights of RESPONSE_EVIDENCE and a bias, for calibrated log-odds of a response. If empty, a
            response has the probability of its most probable token.
        response_threshold: Probability from which a response is labelled hallucinated.
        aim: Metric that the response threshold was chosen for.
    """

    slope: Weight = 1.0
    bias: Weight = 0.0
    token_weights: Annotated[Weights, Sizes((0, len(TOKEN_EVIDENCE) + 1))] = ()
    char_threshold: Share = 0.5
    merge_gap: Annotated[int, Range(ge=0, le=MAX_CHARACTERS)] = 0
    min_length: Annotated[int, Range(ge=1, le=MAX_CHARACTERS)] = 1
    response_weights: Annotated[Weights, Sizes((0, len(RESPONSE_EVIDENCE) + 1))] = (1.0, 0.0, 0.0, 0.0, 0.0)
    response_threshold: ResponseThreshold = 0.5
    aim: str = "none: nothing was fitted"

    def probabilities(self, answers: Answers) -> Floats:
        """Computes the calibrated P(hallucinated) of tokens."""
        if not self.token_weights:
            return sigmoid(self.slope * answers.odds + self.bias)
        return sigmoid(linear(answers.token_evidence(), self.token_weights))

    def spans(
        self,
        answers: Answers,
        probability: Floats,
        is_hallucinated: NDArray[np.bool_] | None = None,
        char_threshold: float | None = None,
    ) -> FoundSpans:
        """Finds spans of whole words above the threshold, merged and filtered; they match the labels if given.

        Then a faithful response has no span, and a hallucinated response at least one: its most probable token, if it
        has visible tokens.

        Args:
            probability: Calibrated probability of each token.
            is_hallucinated: The label of each response [responses]; None ignores labels.
            char_threshold: Replaces the stored threshold.
        """
        start, end, owner = answers.begin, answers.stop, answers.owner
        threshold = self.char_threshold if char_threshold is None else char_threshold
        limits = {"merge_gap": self.merge_gap, "min_length": self.min_length}
        found = find_spans(start, end, probability, owner, threshold=threshold, **limits)
        if is_hallucinated is None:
            return found
        kept = is_hallucinated[owner[found.first]]
        lacks_span = is_hallucinated.copy()
        lacks_span[owner[found.first]] = False
        # The visible tokens of these responses, the most probable first; the first of each response is taken.
        tokens = np.flatnonzero(lacks_span[owner] & (end > start))
        tokens = tokens[np.lexsort((-probability[tokens], owner[tokens]))]
        tokens = tokens[np.flatnonzero(np.diff(owner[tokens], prepend=-1))]
        first, last = np.append(found.first[kept], tokens), np.append(found.last[kept], tokens)
        order = np.argsort(first, kind="stable")
        begins, stops = np.append(found.start[kept], start[tokens]), np.append(found.end[kept], end[tokens])
        return FoundSpans(begins[order], stops[order], first[order], last[order])

    def is_hallucinated(self, scores: Floats, threshold: float | None = None) -> NDArray[np.bool_]:
        """Returns which responses are labelled hallucinated, by the stored threshold or another one."""
        return scores >= (self.response_threshold if threshold is None else threshold)

    def response_scores(self, answers: Answers, probability: Floats) -> Floats:
        """Computes P(response is hallucinated) from RESPONSE_EVIDENCE, or takes its highest token [responses]."""
        if not self.response_weights:
            return answers.worst(probability)
        return sigmoid(linear(answers.response_evidence(probability), self.response_weights))


@options("layout")
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        labels: Names of the classes: outside, then hallucinated or its types.
        max_length: Tokens of a window.
        max_windows: Windows read of a long context, when the thresholds were fitted too; None reads all.
        token_support: The log-odds of tokens come from `critic.token_support` instead of the head.
        head: Slope and bias of the calibration that the head contains (`critic.weights.rescale_head`); empty if the
            calibration is outside the weights.
        calibration: Converts log-odds to spans.
        origin: Provenance: base weights, data and its fingerprint, versions.
    """

    labels: tuple[str, ...]
    max_length: Tokens
    max_windows: Count | None = None
    token_support: Switch = False
    head: Line = ()
    calibration: SpanCalibration
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        layout: dict[str, Any] = {"max_length": self.max_length}
        if self.max_windows is not None:
            layout["max_windows"] = self.max_windows
        if self.token_support:
            layout["token_support"] = True
        head = {HEAD: list(self.head)} if self.head else {}
        return Sidecar(
            kind=TAGGER,
            labels=list(self.labels),
            layout=layout,
            thresholds={**asdict(self.calibration), **head},
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        if tuple(sidecar.labels) not in (tagger_labels(True), tagger_labels(False)):
            raise UserError(f"labels are {shorten(sidecar.labels)}, which no tagger has")
        thresholds = dict(sidecar.thresholds)
        head = thresholds.pop(HEAD, [])
        check_value(f"thresholds.{HEAD}", head, Line)
        calibration = read_stored(SpanCalibration, thresholds, "thresholds")
        values = {"labels": tuple(sidecar.labels), "head": head, "calibration": calibration, "origin": sidecar.origin}
        return read_stored(cls, {**sidecar.layout, **values}, "layout", complete=False)


def tagger_labels(typed: bool) -> tuple[str, ...]:
    """Returns the labels of a head with or without types."""
    return (FAITHFUL, *SPAN_TYPES) if typed else (FAITHFUL, HALLUCINATED)
