"""Responses of other dialogues, as near as the corpus has them: near ones are harder to tell from the right one.

Near means knowledge that shares rare words. A response that was given to the same knowledge, or that says much of what
this example's knowledge or its own response says, is none: it may be right.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from data_modules.reading.exclude import text_key
from faithkit.records import Example
from faithkit.words import ascii_content_words

NUM_WORDS = 6  # rarest words of a knowledge text, by which the near ones are found
NUM_LOOKED_AT = 64  # examples for one such word
MIN_WORDS = 3  # content words of a response that says anything
SUPPORTED = 0.5  # share of a response's content words in knowledge and gold response, from which on it may be right


def other_responses(examples: Sequence[Example], num: int, seed: int) -> list[list[str]]:
    """Up to `num` texts for each example, the nearest first."""
    neighbours = _Neighbours(sorted(examples, key=lambda e: e.id), seed)  # whatever order the rows came in
    return [neighbours.of(example, num) for example in examples]


class _Neighbours:
    def __init__(self, examples: Sequence[Example], seed: int):
        self.examples, self.seed = examples, seed
        self.known = {e.knowledge: frozenset(ascii_content_words(e.knowledge)) for e in examples}
        self.keys = {knowledge: text_key(knowledge) for knowledge in self.known}
        self.said = [set(ascii_content_words(e.response)) for e in examples]
        groups: dict[str, set[str]] = defaultdict(set)
        self.having: dict[str, list[int]] = defaultdict(list)
        for place, example in enumerate(examples):
            for word in self.known[example.knowledge]:
                groups[word].add(example.group)
                self.having[word].append(place)
        shared = {word: len(having) for word, having in groups.items() if len(having) > 1}
        self.weight = {word: math.log(1 + len(examples) / count) for word, count in shared.items()}
        for word in self.weight:
            Random(f"{seed}:{word}").shuffle(self.having[word])

    def of(self, example: Example, num: int) -> list[str]:
        key = self.keys[example.knowledge]
        known = self.known[example.knowledge].union(ascii_content_words(example.response))
        found: dict[str, str] = {}
        for place in self._by_nearness(example):
            other = self.examples[place]
            if len(found) == num:
                break
            if other.group != example.group and self.keys[other.knowledge] != key and self._unsupported(place, known):
                found.setdefault(text_key(other.response), other.response)
        return list(found.values())

    def _unsupported(self, place: int, known: frozenset[str]) -> bool:
        said = self.said[place]
        return len(said) >= MIN_WORDS and len(said & known) < SUPPORTED * len(said)

    def _by_nearness(self, example: Example) -> Iterator[int]:
        random = Random(f"{self.seed}:{example.id}")
        words = [word for word in self.known[example.knowledge] if word in self.weight]
        scores: dict[int, float] = defaultdict(float)
        for word in heapq.nlargest(NUM_WORDS, words, key=lambda word: (self.weight[word], word)):
            having = self.having[word]
            start = random.randrange(len(having))
            for place in (having + having)[start : start + min(NUM_LOOKED_AT, len(having))]:
                scores[place] += self.weight[word]
        yield from (place for place, _ in sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        for _ in range(NUM_LOOKED_AT):  # where nothing is near, anything will do
            yield random.randrange(len(self.examples))
