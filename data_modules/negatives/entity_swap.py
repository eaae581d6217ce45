"""The gold response with entities replaced by others of their type, taken from other knowledge of the corpus.

The sentence stays as it is: a hallucination that only the knowledge can tell.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

from data_modules.negatives.entities import Finder
from data_modules.negatives.slots import WORD_CLASSES, Mention, Slot, mention, unlike
from faithkit.records import Example
from faithkit.words import UNICODE_WORD, ascii_content_words, unicode_words

MAX_POOL_TEXTS = 2000  # knowledge texts from which entities are taken: more would take time and add little
NUM_TRIES = 24  # draws for one entity

Pool = Mapping[Slot, Sequence[str]]


def entity_swaps(examples: Sequence[Example], num: int, seed: int, find: Finder) -> list[list[str]]:
    """Up to `num` texts for each example; none where the response has no entity that can be replaced."""
    pool = _pool(sorted({e.knowledge for e in examples}), seed, find)
    stated = [_stated(example) for example in examples]
    texts = [e.response if _may_name(e.response, words) else "" for e, words in zip(examples, stated, strict=True)]
    found = zip(texts, find(texts), strict=True)
    mentions = [[one for entity in entities if (one := mention(text, entity))] for text, entities in found]
    rows = zip(examples, mentions, stated, strict=True)
    return [_swaps(example, here, words, pool, num, seed) for example, here, words in rows]


def _stated(example: Example) -> set[str]:
    """The words that an entity may have come from: what knowledge and history say is what a swap contradicts."""
    return set(ascii_content_words(" ".join([example.knowledge, *(turn.text for turn in example.history)])))


def _may_name(response: str, stated: set[str]) -> bool:
    """True if some capitalised word or number of the response was stated before: else no entity need be looked for."""
    return any(
        word.lower() in stated and (word[0].isupper() or word.lower() in WORD_CLASSES or not word.isalpha())
        for word in UNICODE_WORD.findall(response)
    )


def _pool(texts: Sequence[str], seed: int, find: Finder) -> Pool:
    chosen = sorted(texts, key=lambda text: hashlib.blake2b(f"{seed}:{text}".encode()).digest())[:MAX_POOL_TEXTS]
    pool: dict[Slot, set[str]] = defaultdict(set)
    for text, entities in zip(chosen, find(chosen), strict=True):
        for entity in entities:
            one = mention(text, entity)
            if one and not one.opens:  # at the start of a sentence any word has a capital, and may be taken for a name
                pool[one.slot].add(one.text)
    return {slot: sorted(entities) for slot, entities in pool.items()}


def _swaps(
    example: Example, mentions: Sequence[Mention], stated: set[str], pool: Pool, num: int, seed: int
) -> list[str]:
    random = Random(f"{seed}:{example.id}")
    here = _words(example.knowledge) + _words(example.response)
    first = {one.text: one for one in reversed(mentions) if one.slot in pool}
    known = sorted(one for one in first.values() if not stated.isdisjoint(ascii_content_words(one.text)))
    swaps: dict[str, None] = {}
    for _ in range(2 * num):
        if not known or len(swaps) == num:
            break
        chosen = random.sample(known, random.randint(1, len(known)))
        drawn = {one.text: _draw(one, pool, here, random) for one in chosen}
        if values := {text: other for text, other in drawn.items() if other}:
            swaps[_replace(example.response, values)] = None
    return list(swaps)


def _draw(one: Mention, pool: Pool, here: str, random: Random) -> str | None:
    others = pool[one.slot]
    for _ in range(NUM_TRIES):
        other = random.choice(others)
        if unlike(one.text, other, one.slot.label) and _words(other) not in here:
            return other.lower() if one.text.islower() else other
    return None


def _words(text: str) -> str:
    """The words of a text between single spaces, so that a stretch of words can be looked for."""
    return f" {' '.join(unicode_words(text))} "


def _replace(text: str, values: Mapping[str, str]) -> str:
    """Every place of every entity, the longer ones first."""
    names = "|".join(re.escape(name) for name in sorted(values, key=len, reverse=True))
    pattern = re.compile(rf"(?<!\w)(?:{names})(?!\w)")

    def other(found: re.Match[str]) -> str:
        value = values[found.group()]
        opens = not text[: found.start()].strip() or text[: found.start()].rstrip()[-1] in ".!?"
        return value[0].upper() + value[1:] if opens and found.group()[0].isupper() else value

    return pattern.sub(other, text)
