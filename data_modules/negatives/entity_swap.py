"""Replaces entities of the gold response by others of their type, taken from other knowledge of the corpus.

The sentence around them stays, so the hallucination can be recognised only by comparing it with the knowledge.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from faithkit.errors import UserError
from faithkit.records import Example
from faithkit.weights.resolve import resolve
from faithkit.words import cased_words, unicode_content_words, unicode_words

BATCH_SIZE = 256


class Entity(NamedTuple):
    """A named entity: its place in a text, and its type as in OntoNotes."""

    start: int
    end: int
    label: str


Finder = Callable[[Sequence[str]], list[list[Entity]]]


def spacy_model(weights: str) -> str:
    """Names the version of spaCy and of the model, without loading them."""
    try:
        spacy = version("spacy")
    except PackageNotFoundError as error:
        hint = "pip install spacy (a plain install of faithkit brings it), or leave entity_swap out of the kinds"
        raise UserError("entity swaps need spaCy, which is not installed", hint=hint) from error
    folder = Path(resolve(weights))
    if not (folder / "meta.json").is_file():
        raise UserError(f"{weights} is not a spaCy model", place=str(folder), hint="use spacy-sm, or a model's folder")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return f"spacy {spacy}, {meta.get('name')} {meta.get('version')}"


def find_entities(weights: str) -> Finder:
    """Returns a finder that loads its model at its first use."""

    def find(texts: Sequence[str]) -> list[list[Entity]]:
        import spacy

        spacy_model(weights)
        folder = resolve(weights)
        # Recognition needs no other pipes; in the small model it has a separate tok2vec.
        config = (Path(folder) / "config.cfg").read_text(encoding="utf-8")
        ner = config.partition("[components.ner.model.tok2vec]")[2].partition("\n[")[0]
        unneeded = ["tagger", "parser", "attribute_ruler", "lemmatizer", "senter", "morphologizer"]
        return entities_of(spacy.load(folder, exclude=unneeded if "Listener" in ner else ["tok2vec", *unneeded]), texts)

    return find


def entities_of(pipeline: Any, texts: Sequence[str]) -> list[list[Entity]]:
    """Finds the entities of each text; each distinct text is read once."""
    distinct = list(dict.fromkeys(texts))
    documents = pipeline.pipe(distinct, batch_size=BATCH_SIZE, n_process=1)
    found = {
        text: [Entity(e.start_char, e.end_char, e.label_) for e in document.ents]
        for text, document in zip(distinct, documents, strict=True)
    }
    return [found[text] for text in texts]


NUMERIC = {"CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY", "DATE", "TIME"}
MAX_LENGTH = 60  # characters: longer ones are sentences that were mistaken for titles

_NUMBERS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty hundred dozen"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth"
_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_SEASONS = "spring summer autumn fall winter"
WORD_CLASSES = {
    word: name
    for name, words in (("n", _NUMBERS), ("o", _ORDINALS), ("m", _MONTHS), ("d", _DAYS), ("s", _SEASONS))
    for word in words.split()
}
_ARTICLE = re.compile(r"(?:the|a|an)\s+", re.IGNORECASE)
_BEFORE = re.compile(r"\b(the|a|an)\s+$", re.IGNORECASE)
_VOWEL = re.compile(r"[aeiou]|8|1[18](?!\d)", re.IGNORECASE)  # eight, eleven and eighteen too
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+)\W*$")
_ALIASES = (
    {"us", "usa", "america", "unitedstates", "unitedstatesofamerica", "states"},
    {"uk", "britain", "greatbritain", "unitedkingdom", "england"},
)


class Slot(NamedTuple):
    """The form that a replacement needs: entities of one slot can replace each other in a sentence."""

    label: str
    form: str
    article: str  # the article before it, if any: another entity may need another one, or none


class Mention(NamedTuple):
    """An entity's occurrence in a text, without article and possessive."""

    start: int
    end: int
    text: str
    slot: Slot
    opens_sentence: bool


def mention(text: str, entity: Entity) -> Mention | None:
    """Makes the mention of an entity, or returns None if its form is unclear."""
    start, end = entity.start, entity.end
    if found := _ARTICLE.match(text, start, end):
        start = found.end()
    surface = text[start:end].removesuffix("'s").removesuffix("’s").removesuffix("'").rstrip()
    whole = surface[:1].isalnum() and (surface[-1:].isalnum() or surface[-1:] in ".%") and "\n" not in surface
    if not whole or not 2 <= len(surface) <= MAX_LENGTH or surface.lower() == "one":  # "one of the": no number
        return None
    before = _BEFORE.search(text[:start])
    article = before.group(1).lower() if before else ""
    if article in ("a", "an"):
        article = "an" if _VOWEL.match(surface) else "a"
    slot = Slot(entity.label, form(surface, entity.label), article)
    return Mention(start, start + len(surface), surface, slot, bool(_SENTENCE_START.search(text[: entity.start])))


def form(surface: str, label: str) -> str:
    """Describes the form of an entity: a pattern for numbers and times; for names, one word or many, and plural."""
    if label in NUMERIC:
        words = re.sub(r"\d", "9", surface.lower()).replace("-", " ").split()
        return " ".join(WORD_CLASSES.get(word.rstrip(",."), word) for word in words)
    many = "many" if " " in surface else "one"
    return f"{many}, plural" if label == "NORP" and surface.endswith("s") else many


def are_distinct(one: str, other: str, label: str) -> bool:
    """Returns whether two entities of one slot certainly mean different things."""
    first, second = (frozenset(unicode_words(text)) for text in (one, other))
    if label in NUMERIC:
        return first != second
    keys = ["".join(unicode_words(text)) for text in (one, other)]
    if any(keys[0] in same and keys[1] in same for same in _ALIASES):
        return False
    initials = ["".join(word[0] for word in cased_words(text)).lower() for text in (one, other)]
    return not (first & second or keys[0] == initials[1] or keys[1] == initials[0])


Pool = Mapping[Slot, Sequence[str]]  # possible replacements


def entity_swaps(examples: Sequence[Example], num: int, seed: int, find: Finder) -> list[list[str]]:
    """Makes up to `num` texts for each example; none if the response has no entity that can be replaced."""
    # Entities of the knowledge by slot; of many texts, the 2,000 with the lowest hashes: more would add little.
    every = sorted({e.knowledge for e in examples})
    chosen = sorted(every, key=lambda text: hashlib.blake2b(f"{seed}:{text}".encode()).digest())[:2000]
    names: dict[Slot, set[str]] = defaultdict(set)
    for text, entities in zip(chosen, find(chosen), strict=True):
        for entity in entities:
            known = mention(text, entity)
            # At the start of a sentence any word is capitalised, and may be mistaken for a name.
            if known and not known.opens_sentence:
                names[known.slot].add(known.text)
    pool = {slot: sorted(entities) for slot, entities in names.items()}
    # Only an entity that knowledge or history states can be contradicted.
    earlier = [" ".join([e.knowledge, *(turn.text for turn in e.history)]) for e in examples]
    stated = [set(unicode_content_words(text)) for text in earlier]
    texts = []
    for example, known_words in zip(examples, stated, strict=True):
        # Quick to see: without a capitalised word or a number stated before, the response names no such entity.
        may_name = any(
            word.lower() in known_words and (word[0].isupper() or word.lower() in WORD_CLASSES or not word.isalpha())
            for word in cased_words(example.response)
        )
        texts.append(example.response if may_name else "")
    found = zip(texts, find(texts), strict=True)
    mentions = [[made for entity in entities if (made := mention(text, entity))] for text, entities in found]
    made_texts = []
    for example, named, known_words in zip(examples, mentions, stated, strict=True):
        random = Random(f"{seed}:{example.id}")
        own_words = _spaced_words(example.knowledge) + _spaced_words(example.response)
        first = {mention.text: mention for mention in reversed(named) if mention.slot in pool}  # of equal texts
        replaceable = sorted(
            one for one in first.values() if not known_words.isdisjoint(unicode_content_words(one.text))
        )
        swaps: dict[str, None] = {}
        for _ in range(2 * num):
            if not replaceable or len(swaps) == num:
                break
            replacements: dict[str, str] = {}
            for replaced in random.sample(replaceable, random.randint(1, len(replaceable))):
                for _ in range(24):
                    other = random.choice(pool[replaced.slot])
                    is_new = _spaced_words(other) not in own_words
                    if is_new and are_distinct(replaced.text, other, replaced.slot.label):
                        replacements[replaced.text] = other.lower() if replaced.text.islower() else other
                        break
            if replacements:
                swaps[_replace(example.response, replacements)] = None
        made_texts.append(list(swaps))
    return made_texts


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
