"""The four measures of SelfCheckGPT (Manakul et al. 2023): how far a sentence is from samples of the same prompt.

Higher is more likely hallucinated. With N samples S_1 ... S_N:

| measure      | score of a sentence r                                                                             |
|--------------|---------------------------------------------------------------------------------------------------|
| `BertScores` | 1 - mean over n of max over sentences s of S_n of F1(r, s), rescaled                              |
| `Nli`        | mean over n of P(contradiction) / (P(entailment) + P(contradiction)); premise r, hypothesis S_n    |
| `Ngrams`     | mean, or max, over the words of r of -log p, p by counts of n-grams in the response and the samples |
| `Prompted`   | mean over n of: is r supported by S_n? yes 0, no 1, any other reply 0.5                           |

>>> from judge.selfcheck_measures import Checked, Ngrams
>>> [[round(score, 3) for score in own] for own in Ngrams().score([Checked(["a b"], "a b", ["a a"])])]
[[0.837]]
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import log
from statistics import fmean
from typing import NamedTuple, Protocol

import numpy as np

from faithkit.entailment import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Form, TextEngine
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.sentences import sentence_places
from faithkit.statistics.spread import Values
from faithkit.words import words_and_marks
from judge.questions import TextPrompt, ask
from judge.reply import CHOICES, read_verdict

START = "\0"  # before the first word of a text, where n-grams begin
SUPPORTED = {HALLUCINATED: 0.0, FAITHFUL: 1.0}  # a yes is read as the one label, a no as the other
UNREAD = 0.5


class Checked(NamedTuple):
    """A response in its sentences, and the samples that it is compared with."""

    sentences: list[str]
    response: str
    samples: list[str]


class Measure(Protocol):
    """Scores sentences by samples."""

    def score(self, checked: Sequence[Checked]) -> list[list[float]]:
        """The score of each sentence of each response."""
        ...


class Similarity(Protocol):
    """Scores how alike the texts of pairs are."""

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Values: ...


@dataclass(frozen=True, slots=True)
class BertScores:
    """Compares with the sentence of each sample that is most alike; `f1` gives rescaled F1."""

    f1: Similarity

    def score(self, checked: Sequence[Checked]) -> list[list[float]]:
        """A sample without words is as unlike as unrelated sentences."""
        parts = {text: split_sentences(text) for one in checked for text in one.samples}
        pairs = {
            (said, part): 0.0
            for one in checked
            for said, text in product(one.sentences, one.samples)
            for part in parts[text]
        }
        found = self.f1.score([said for said, _ in pairs], [part for _, part in pairs])
        alike = dict(zip(pairs, np.asarray(found, np.float64).tolist(), strict=True))

        def best(said: str, text: str) -> float:
            return max((alike[said, part] for part in parts[text]), default=0.0)

        return [[1 - fmean(best(said, text) for text in one.samples) for said in one.sentences] for one in checked]


@dataclass(frozen=True, slots=True)
class Nli:
    """Asks an NLI model whether the samples contradict; a critic has one other class, which counts as contradiction."""

    model: Entailment

    def score(self, checked: Sequence[Checked]) -> list[list[float]]:
        pairs = [pair for one in checked for pair in product(one.sentences, one.samples)]
        found = self.model.entailment([said for said, _ in pairs], [text for _, text in pairs])
        against = found[:, CONTRADICTION] if found[:, CONTRADICTION].any() else found[:, NEUTRAL]
        shares = iter((against / (against + found[:, ENTAILMENT])).tolist())
        return [[fmean(next(shares) for _ in one.samples) for _ in one.sentences] for one in checked]


@dataclass(frozen=True, slots=True)
class Ngrams:
    """Counts words: no model at all.

    Args:
        order: Words that are counted together: p(word | the words before) = count of all / count of those before.
        unlikeliest: Takes a sentence's unlikeliest word, in place of the mean.
    """

    order: int = 1
    unlikeliest: bool = False

    def score(self, checked: Sequence[Checked]) -> list[list[float]]:
        return [self._sentences(one) for one in checked]

    def _sentences(self, one: Checked) -> list[float]:
        texts = [*one.sentences, *chain.from_iterable(map(split_sentences, one.samples))]
        whole = [gram for text in texts for gram in self._grams(text)]
        counts, before = Counter(whole), Counter(gram[:-1] for gram in whole)
        found = []
        for sentence in one.sentences:
            surprises = [log(before[gram[:-1]] / counts[gram]) for gram in self._grams(sentence)] or [0.0]
            found.append(max(surprises) if self.unlikeliest else fmean(surprises))
        return found

    def _grams(self, text: str) -> list[tuple[str, ...]]:
        words = [START] * (self.order - 1) + words_and_marks(text)
        return [tuple(words[place : place + self.order]) for place in range(len(words) - self.order + 1)]


@dataclass(frozen=True, slots=True)
class Prompted:
    """Asks a language model whether a sample supports a sentence.

    Args:
        prompt: With the fields `context` and `sentence`.
    """

    engine: TextEngine
    prompt: TextPrompt

    def score(self, checked: Sequence[Checked]) -> list[list[float]]:
        asked = [
            self.prompt.messages(context=text, sentence=said)
            for one in checked
            for said, text in product(one.sentences, one.samples)
        ]
        replies = iter(ask(self.engine, asked, Decoding(max_new_tokens=4), Form(choices=CHOICES)))
        return [
            [float(np.mean([_read(next(replies).texts) for _ in one.samples])) for _ in one.sentences]
            for one in checked
        ]


def split_sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [text[begin:end] for begin, end in sentence_places(text)]


def _read(texts: Sequence[str]) -> float:
    return SUPPORTED.get(read_verdict(texts[0]), UNREAD) if texts else UNREAD
