"""Hallucinations made from faithful answers, by removing the sentences of the context that support them.

A model that adds unsupported claims stays on the topic and in its style; text swapped in from elsewhere does not
look like that. Here the answer stays as it is, and the sentences of the context that share most words with one of its
sentences are removed. The answer's sentences that are no longer supported are marked. An example is kept only where
this is clear: every sentence of the answer must either keep its support or lose it.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from data_modules.reading import SPLITS, File, ReadReport, Records, Source, read_examples
from faithkit.records import HALLUCINATED, UNTYPED, Example, Span
from faithkit.settings.check import check_value
from faithkit.settings.types import Count, NonNegativeInt
from faithkit.words import sentence_places, unicode_content_words

VERSION = 2  # raised when the same records give other examples
# Support is the share of a sentence's content words that the context holds.
SUPPORTED = 0.6  # least support of a sentence that is to lose it
UNSUPPORTED = 0.4  # most support of a sentence that counts as hallucinated
MAX_LOSS = 0.1  # of support, for a sentence to count as unchanged
SUPPORTING = 0.3  # least share of a sentence's words in a sentence of the context that is removed for it
MIN_WORDS = 4  # least content words of a sentence that is to lose its support


@dataclass(frozen=True, kw_only=True)
class DroppedSupport(Source):
    """Weakly marked examples for training alone, made from the faithful answers of another span corpus.

    Groups are those of the other corpus, so nothing is made of what it is validated or tested on.

    Args:
        of: The corpus, in a configuration as `{dataset, path, ...}`.
        num_copies: Attempts for each faithful answer, each with another sentence.
    """

    name: ClassVar[str] = "dropped_support"
    train_only: ClassVar[bool] = True
    derived_from: ClassVar[str | None] = "ragtruth"
    path: str = field(init=False)  # that of the corpus
    of: Source
    num_copies: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.of.path)
        check_value("num_copies", self.num_copies, Count)
        check_value("seed", self.seed, NonNegativeInt)

    def files(self) -> Mapping[str, Sequence[File]]:
        split = self._split()
        return {"train": self.of.files()[split]} if split else {}

    def layout(self) -> Mapping[str, Any]:
        settings = {"version": VERSION, "num_copies": self.num_copies, "seed": self.seed, "of": self.of.name}
        return {**settings, **self.of.layout()}

    def read_split(self, split: str, report: ReadReport) -> Records:
        for example in read_examples(self.of, self._split(), ReadReport(report.on_bad_row)):
            if example.spans == ():
                rng = random.Random(f"{self.seed}:{example.id}")
                for copy, found in enumerate(drop_support(example, rng, self.num_copies)):
                    made = replace(found, id=f"{example.id}-dropped-{copy}", source=self.name, split=split)
                    yield made, None
            else:
                report.count("not made from: hallucinated already")

    def _split(self) -> str | None:
        official = self.of.split_names()
        return next((name for name in ("train", "all", *SPLITS) if name in official), None)


def drop_support(example: Example, rng: random.Random, num_copies: int) -> Iterator[Example]:
    """Copies a faithful example without the sentences of the context that support one of the answer's."""
    answer_places, answer = _sentence_words(example.response)
    context_places, context = _sentence_words(example.knowledge)
    question = {word for turn in example.history for word in unicode_content_words(turn.text)}
    full = set().union(*context)
    candidates = [i for i, words in enumerate(answer) if len(words) >= MIN_WORDS and _overlap(words, full) >= SUPPORTED]
    before = [_overlap(words, full | question) for words in answer]
    rng.shuffle(candidates)
    for target in candidates[:num_copies]:
        wanted = answer[target] - question
        removed = [i for i, words in enumerate(context) if wanted and _overlap(wanted, words) >= SUPPORTING]
        remaining = set().union(question, *(words for i, words in enumerate(context) if i not in removed))
        after = [_overlap(words, remaining) for words in answer]
        weakened = [i for i in range(len(answer)) if before[i] - after[i] > MAX_LOSS]
        unsupported = [i for i in weakened if after[i] <= UNSUPPORTED and len(answer[i]) >= MIN_WORDS]
        if target not in unsupported or unsupported != weakened or len(removed) == len(context):
            continue  # some sentence is neither supported nor clearly unsupported, or no context is left
        spans = (Span(start=answer_places[i][0], end=answer_places[i][1], label=UNTYPED) for i in unsupported)
        knowledge = example.knowledge
        for start, end in reversed([context_places[i] for i in removed]):
            knowledge = knowledge[:start] + knowledge[end:]
        yield replace(example, knowledge=knowledge, spans=tuple(spans), label=HALLUCINATED, tags=())


def _sentence_words(text: str) -> tuple[list[tuple[int, int]], list[set[str]]]:
    """Finds the places of a text's sentences, and the content words of each."""
    places = sentence_places(text)
    return places, [set(unicode_content_words(text[start:end])) for start, end in places]


def _overlap(words: set[str], others: set[str]) -> float:
    return len(words & others) / len(words) if words else 1.0
