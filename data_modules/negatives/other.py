"""Responses from the most similar dialogues of the corpus: these are hard to tell from the right response.

Similar means that their knowledge shares rare words. A response to the same knowledge, or one that shares many words
with this example's knowledge or its own response, is left out, because it may be right.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from faithkit.provenance.row_keys import text_key
from faithkit.records import Example
from faithkit.words import unicode_content_words

NUM_WORDS = 6  # rarest words of a knowledge text, by which similar ones are found
NUM_PER_WORD = 64  # examples looked at for one such word
MIN_WORDS = 3  # least content words of a response: shorter ones say nothing
SUPPORTED = 0.5  # least share of a response's content words in knowledge and gold response for it to count as right


def other_responses(examples: Sequence[Example], num: int, seed: int) -> list[list[str]]:
    """Finds up to `num` texts for each example, from the most similar dialogue on."""
    index = _SimilarExamples(sorted(examples, key=lambda e: e.id), seed)  # so that the order of the rows is irrelevant
    return [index.responses(example, num) for example in examples]


class _SimilarExamples:
    """An inverted index: finds the examples whose knowledge shares rare words with that of another."""

    def __init__(self, examples: Sequence[Example], seed: int):
        self.examples, self.seed = examples, seed
        self.known = {e.knowledge: frozenset(unicode_content_words(e.knowledge)) for e in examples}
        self.keys = {knowledge: text_key(knowledge) for knowledge in self.known}
        self.response_words = [set(unicode_content_words(e.response)) for e in examples]
        groups: dict[str, set[str]] = defaultdict(set)
        self.rows: dict[str, list[int]] = defaultdict(list)  # by word of the knowledge
        for place, example in enumerate(examples):
            for word in self.known[example.knowledge]:
                groups[word].add(example.group)
                self.rows[word].append(place)
        shared = {word: len(names) for word, names in groups.items() if len(names) > 1}  # by other dialogues too
        self.weight = {word: math.log(1 + len(examples) / count) for word, count in shared.items()}
        for word in self.weight:
            Random(f"{seed}:{word}").shuffle(self.rows[word])

    def responses(self, example: Example, num: int) -> list[str]:
        """Finds up to `num` responses that are not supported by the example's knowledge or response."""
        key = self.keys[example.knowledge]
        known = self.known[example.knowledge].union(unicode_content_words(example.response))
        found: dict[str, str] = {}
        for place in self._by_similarity(example):
            other = self.examples[place]
            if len(found) == num:
                break
            if other.group != example.group and self.keys[other.knowledge] != key and self._unsupported(place, known):
                found.setdefault(text_key(other.response), other.response)
        return list(found.values())

    def _unsupported(self, place: int, known: frozenset[str]) -> bool:
        words = self.response_words[place]
        return len(words) >= MIN_WORDS and len(words & known) < SUPPORTED * len(words)

    def _by_similarity(self, example: Example) -> Iterator[int]:
        """Yields similar examples, the most similar first, and then random ones."""
        random = Random(f"{self.seed}:{example.id}")
        words = [word for word in self.known[example.knowledge] if word in self.weight]
        scores: dict[int, float] = defaultdict(float)
        for word in heapq.nlargest(NUM_WORDS, words, key=lambda word: (self.weight[word], word)):
            rows = self.rows[word]
            start = random.randrange(len(rows))  # a random part of them, cyclically
            for step in range(min(NUM_PER_WORD, len(rows))):  # copying the list would cost its whole length
                scores[rows[(start + step) % len(rows)]] += self.weight[word]
        yield from (place for place, _ in sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        for _ in range(NUM_PER_WORD):  # where nothing is similar, any example will do
            yield random.randrange(len(self.examples))
