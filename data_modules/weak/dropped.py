"""Hallucinations made from faithful answers by removing the support of a sentence from the context.

Real hallucinations stay on the topic and in the model's own words, unlike text swapped in from elsewhere. Here the
answer is left as it is, and the sentences of the context that share most words with one of its sentences are cut out.
The sentences that lost their support are marked as spans. An example is kept only where the result is clear: every
sentence of the answer either keeps its support or loses it.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from data_modules.reading.dataset import SPLITS, Records, Source, read_examples
from data_modules.reading.files import File
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, Example, Span
from faithkit.sentences import sentence_places
from faithkit.span_types import UNTYPED
from faithkit.words import ascii_content_words

VERSION = 1  # a change of what is made from the same records changes it
SUPPORTED, UNSUPPORTED = 0.6, 0.4  # shares of a sentence's content words that stand in the context
SAME = 0.1  # of its words a sentence may lose and still be as it was
KEPT_SHARE = 0.3  # of a sentence's words, from which on a sentence of the context is cut out with it
MIN_WORDS = 4  # content words of a sentence that may lose its support


@dataclass(frozen=True, kw_only=True)
class DroppedSupport(Source):
    """Weakly marked examples for training alone, made from the faithful answers of another span corpus.

    Groups are the other corpus's own, so nothing is made of what it is validated or tested on.

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
        if self.num_copies < 1:
            raise UserError(f"num_copies is {self.num_copies}", hint="use 1 or more")

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
    """Makes copies of a faithful example, each without the context that supports one of the answer's sentences."""
    answer = sentence_places(example.response)
    context = sentence_places(example.knowledge)
    said = [set(ascii_content_words(example.response[begin:end])) for begin, end in answer]
    shown = [set(ascii_content_words(example.knowledge[begin:end])) for begin, end in context]
    every = set().union(*shown) if shown else set()
    asked = {word for turn in example.history for word in ascii_content_words(turn.text)}
    chosen = [i for i, words in enumerate(said) if len(words) >= MIN_WORDS and _share(words, every) >= SUPPORTED]
    rng.shuffle(chosen)
    for target in chosen[:num_copies]:
        words = said[target] - asked
        gone = [i for i, have in enumerate(shown) if words and _share(words, have) >= KEPT_SHARE]
        left = set().union(*(have for i, have in enumerate(shown) if i not in gone)) | asked
        before, after = ([_share(words, have) for words in said] for have in (every | asked, left))
        fallen = [i for i in range(len(said)) if before[i] - after[i] > SAME]
        lost = [i for i in fallen if after[i] <= UNSUPPORTED and len(said[i]) >= MIN_WORDS]
        if target not in lost or lost != fallen or len(gone) == len(context):
            continue
        spans = tuple(Span(start=answer[i][0], end=answer[i][1], label=UNTYPED) for i in lost)
        yield replace(
            example, knowledge=_without(example.knowledge, context, gone), spans=spans, label=HALLUCINATED, tags=()
        )


def _share(words: set[str], have: set[str]) -> float:
    return len(words & have) / len(words) if words else 1.0


def _without(text: str, places: Sequence[tuple[int, int]], gone: Sequence[int]) -> str:
    kept, begin = [], 0
    for place in gone:
        kept.append(text[begin : places[place][0]])
        begin = places[place][1]
    return "".join([*kept, text[begin:]])
