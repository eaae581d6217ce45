"""Replaces entities of the gold response by others of their type, taken from other knowledge of the corpus.

The sentence around them stays, so the hallucination can be recognised only by comparing it with the knowledge.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

from data_modules.negatives.entities import Finder
from data_modules.negatives.slots import WORD_CLASSES, Mention, Slot, are_distinct, mention
from faithkit.records import Example
from faithkit.words import cased_words, unicode_content_words, unicode_words

MAX_POOL_TEXTS = 2000  # knowledge texts whose entities are collected: more would take time and add little
NUM_TRIES = 24  # draws of a replacement for one entity

Pool = Mapping[Slot, Sequence[str]]  # possible replacements


def entity_swaps(examples: Sequence[Example], num: int, seed: int, find: Finder) -> list[list[str]]:
    """Makes up to `num` texts for each example; none where the response has no entity that can be replaced."""
    pool = _pool(sorted({e.knowledge for e in examples}), seed, find)
    stated = [_stated(example) for example in examples]
    texts = [e.response if _may_name(e.response, words) else "" for e, words in zip(examples, stated, strict=True)]
    found = zip(texts, find(texts), strict=True)
    mentions = [[made for entity in entities if (made := mention(text, entity))] for text, entities in found]
    rows = zip(examples, mentions, stated, strict=True)
    return [_swaps(example, named, words, pool, num, seed) for example, named, words in rows]


def _stated(example: Example) -> set[str]:
    """Returns the content words of knowledge and history: only an entity stated there can be contradicted."""
    return set(unicode_content_words(" ".join([example.knowledge, *(turn.text for turn in example.history)])))


def _may_name(response: str, stated: set[str]) -> bool:
    """Tells quickly whether the response may name an entity: a capitalised word or a number that was stated before."""
    return any(
        word.lower() in stated and (word[0].isupper() or word.lower() in WORD_CLASSES or not word.isalpha())
        for word in cased_words(response)
    )


def _pool(texts: Sequence[str], seed: int, find: Finder) -> Pool:
    """Collects entities of the knowledge by slot; of many texts, those with the lowest hashes."""
    chosen = sorted(texts, key=lambda text: hashlib.blake2b(f"{seed}:{text}".encode()).digest())[:MAX_POOL_TEXTS]
    pool: dict[Slot, set[str]] = defaultdict(set)
    for text, entities in zip(chosen, find(chosen), strict=True):
        for entity in entities:
            found = mention(text, entity)
            # At the start of a sentence any word is capitalised, and may be mistaken for a name.
            if found and not found.opens_sentence:
                pool[found.slot].add(found.text)
    return {slot: sorted(entities) for slot, entities in pool.items()}


def _swaps(
    example: Example, mentions: Sequence[Mention], stated: set[str], pool: Pool, num: int, seed: int
) -> list[str]:
    random = Random(f"{seed}:{example.id}")
    own_words = _spaced_words(example.knowledge) + _spaced_words(example.response)
    first = {mention.text: mention for mention in reversed(mentions) if mention.slot in pool}  # of equal texts
    replaceable = sorted(one for one in first.values() if not stated.isdisjoint(unicode_content_words(one.text)))
    swaps: dict[str, None] = {}
    for _ in range(2 * num):
        if not replaceable or len(swaps) == num:
            break
        chosen = random.sample(replaceable, random.randint(1, len(replaceable)))
        drawn = {one.text: _draw_replacement(one, pool, own_words, random) for one in chosen}
        if replacements := {text: other for text, other in drawn.items() if other}:
            swaps[_replace(example.response, replacements)] = None
    return list(swaps)


def _draw_replacement(replaced: Mention, pool: Pool, own_words: str, random: Random) -> str | None:
    others = pool[replaced.slot]
    for _ in range(NUM_TRIES):
        other = random.choice(others)
        if are_distinct(replaced.text, other, replaced.slot.label) and _spaced_words(other) not in own_words:
            return other.lower() if replaced.text.islower() else other
    return None


def _spaced_words(text: str) -> str:
    """Joins the words of a text by single spaces, with one at each end, so that whole words can be searched for."""
    return f" {' '.join(unicode_words(text))} "


def _replace(text: str, replacements: Mapping[str, str]) -> str:
    """Replaces every occurrence of every entity, the longer ones first."""
    names = "|".join(re.escape(name) for name in sorted(replacements, key=len, reverse=True))
    pattern = re.compile(rf"(?<!\w)(?:{names})(?!\w)")

    def other(found: re.Match[str]) -> str:
        replacement = replacements[found.group()]
        before = text[: found.start()].rstrip()
        opens_sentence = not before or before[-1] in ".!?"
        capitalised = opens_sentence and found.group()[0].isupper()
        return replacement[0].upper() + replacement[1:] if capitalised else replacement

    return pattern.sub(other, text)
