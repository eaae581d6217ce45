"""SelfCheckGPT (Manakul et al. 2023): what a model made up, it says differently each time.

Each sentence of a response is compared with samples; the response's score is the mean over its sentences. Nothing is
trained, and the knowledge is read by nobody but the model that the samples come from.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import exp, log
from statistics import fmean
from typing import NamedTuple, Protocol

import numpy as np
from tqdm.auto import tqdm

from data_modules.reading.dialogues import write_history
from faithkit.arguments import read_examples
from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import Form, TextEngine
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, UNTYPED, Example, Prediction, Span
from faithkit.statistics.spread import Values
from faithkit.words import sentence_places, words_and_marks
from judge.questions import ask
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


MODEL = "model"  # in an example's `meta`: who wrote its response


class Drawn(Protocol):
    """Finds samples."""

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """The samples of each example; none where there are none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSamples:
    """Draws samples from a language model that is given what the responder had: knowledge and history.

    Args:
        prompt: With the fields `knowledge` and `history`.
    """

    engine: TextEngine
    prompt: TextPrompt
    num_samples: int = 5
    temperature: float = 1.0
    max_new_tokens: int = 96

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """An example with neither knowledge nor history has no prompt, and so no samples; nor has one that fails."""
        decoding = Decoding(
            strategy=NUCLEUS,
            top_p=1.0,
            temperature=self.temperature,
            num_samples=self.num_samples,
            max_new_tokens=self.max_new_tokens,
        )
        given = [example for example in examples if example.knowledge.strip() or example.history]
        # Responses to one prompt have the same samples: it is asked once.
        prompts = {
            example.id: self.prompt.messages(knowledge=example.knowledge, history=write_history(example.history))
            for example in given
        }
        distinct = list(dict.fromkeys(prompts.values()))
        texts = dict(zip(distinct, (reply.texts for reply in ask(self.engine, distinct, decoding)), strict=True))
        return [[text for text in texts[prompts[e.id]] if text.strip()] if e.id in prompts else [] for e in examples]


@dataclass(frozen=True, slots=True)
class OtherResponses:
    """Takes what the other models said to the same source, as RAGTruth's SelfCheckGPT does."""

    by_group: Mapping[tuple[str, str], Sequence[Example]]

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "OtherResponses":
        """Sorts responses by source.

        Raises:
            UserError: They do not say which model wrote them.
        """
        by_group = defaultdict(list)
        for example in examples:
            if example.meta.get(MODEL) is None:
                problem = f"selfcheck.samples=others: rows of {example.source} do not name the models that wrote them"
                raise UserError(problem, hint="selfcheck.samples=engine engine=transformers engine.model=NAME")
            by_group[example.source, example.group].append(example)
        return cls(dict(by_group))

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """The responses of other models, in their order."""
        return [
            [
                one.response
                for one in self.by_group.get((example.source, example.group), ())
                if one.meta[MODEL] != example.meta[MODEL]
            ]
            for example in examples
        ]


CHUNK_SIZE = 64  # responses that are compared together
NO_SAMPLES = "there are no samples to compare with"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """A detector by samples.

    Args:
        threshold: A response is called hallucinated from this score on; sentences that reach it are marked.
        unbounded: The measure has no upper end, as -log p; x is told as 1 - exp(-x).
    """

    measure: Measure
    samples: Drawn
    threshold: float = 0.5
    unbounded: bool = False

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order; one without samples is unparsed."""
        examples = read_examples(examples)
        for begin in tqdm(range(0, len(examples), CHUNK_SIZE), "comparing", disable=not progress, unit="chunk"):
            yield from self._predict_chunk(examples[begin : begin + CHUNK_SIZE])

    def _predict_chunk(self, examples: Sequence[Example]) -> Iterator[Prediction]:
        drawn = self.samples.draw(examples)
        places = [sentence_places(example.response) for example in examples]
        compared = [place for place in range(len(examples)) if drawn[place] and places[place]]
        checked = [
            Checked([examples[i].response[a:b] for a, b in places[i]], examples[i].response, drawn[i]) for i in compared
        ]
        scores = dict(zip(compared, self.measure.score(checked) if checked else [], strict=True))
        for number, example in enumerate(examples):
            if number not in scores:
                yield Prediction(id=example.id, label=UNPARSED, text=NO_SAMPLES)
                continue
            own = scores[number]
            score = self._share(sum(own) / len(own))
            spans = [
                Span(start=begin, end=end, label=UNTYPED, score=share)
                for (begin, end), share in zip(places[number], map(self._share, own), strict=True)
                if share >= self.threshold
            ]
            label = HALLUCINATED if score >= self.threshold else FAITHFUL
            yield Prediction(id=example.id, label=label, score=score, spans=tuple(spans))

    def _share(self, score: float) -> float:
        return 1 - exp(-score) if self.unbounded else min(1.0, max(0.0, score))
