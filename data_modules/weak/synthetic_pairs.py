"""Synthetic pairs: makes faithful and hallucinated responses from sentences alone.

A faithful response is the sentence cut and reworded; a hallucinated one is that with an edit, another statement, or
small talk. Both get the same openings, case and punctuation, so that these do not give the label away. No edit is sure
to succeed (a swapped word may mean the same), so each kind has a probability rather than a label.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_modules.reading.formats import read_sections
from faithkit.words import LONG_ASCII_WORD, word_set

_WORDINGS = {
    title: tuple(wording for line in lines for wording in line.split("|"))
    for title, lines in read_sections(Path(__file__).with_name("wordings.txt"))
}
SYNONYMS, DISTORTIONS = (
    [tuple(pair.split(">")) for pair in _WORDINGS.pop(title)] for title in ("synonyms", "distortions")
)
OPENERS, WRAPS, PERSONAL, PERSONAL_OPENERS, ADDITIONS = _WORDINGS.values()


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ENDINGS = ("ing", "ed", "ly", "tion", "ous", "ist", "er", "ies", "s")  # words with equal endings may be swapped
# Words that are never swapped: with another in their place the sentence often means the same.
COMMON = word_set(
    "that this with from have been were which their they more most also into than then when where while about some "
    "such other only many over after before between during known called used made often there these those being would "
    "could"
)


SUBJECT = re.compile(r"^((?:[^\s,]+ ){0,5}?[^\s,]+) (is|are|was|were|has|have)\b")
_CUT = re.compile(
    r",\s|;\s|\s(?:and|but|which|where|while|because|when|with|in|by|for|from|as|after|since|to)\s"
)  # where a sentence may end early
_CLAUSE = re.compile(r"\s*[,;:–—]\s+|\s+(?=(?:and|but|which|where|while|because|when|although|who)\s)")
_PERSON = re.compile(r"\(\s*;? ?born|\bactor|\bactress|\bsinger|\bwriter|\bplayer|\bmusician|\bauthor\b")
_NO_SUBJECTS = word_set("it its there he she they this these in on one")
_ENDS = " .!?"
_NAME = re.compile(r"(?<=[a-z,;)] )[A-Z][\w'’.-]*(?: (?:of |the |and )?[A-Z][\w'’.-]*)*")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_VERB = re.compile(r"\b(is|are|was|were|has|have|can|may|will)\b")


def replace_word(text: str, old: str, new: str) -> str:
    """Replaces the first `old` that is not a part of a longer word."""
    return re.sub(
        r"(?<!\w)" + re.escape(old) + (r"(?!\w)" if old[-1].isalnum() else ""), new, text, count=1, flags=re.I
    )


def uncapitalise(text: str) -> str:
    """Begins the text in lower case, for the middle of a sentence; words in capitals stay."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def without_brackets(text: str) -> str:
    """Removes parts in brackets."""
    return re.sub(r"\s+([,.;])", r"\1", re.sub(r"\s*\([^()]*\)", "", text)).strip()


def without_end(text: str) -> str:
    """Removes the punctuation at the end."""
    return text.rstrip(_ENDS)


def clauses(text: str) -> list[str]:
    """Splits a text at commas, semicolons and linking words."""
    return [part for part in _CLAUSE.split(without_end(text)) if part.strip()]


def extract(knowledge: str, rng: random.Random) -> str:
    """Extracts a statement that the knowledge supports: all of it, its beginning, or all but one clause."""
    body = without_end(without_brackets(knowledge) if rng.random() < 0.8 else knowledge)
    roll = rng.random()
    if roll < 0.30:
        return body
    cuts = [found.start() for found in _CUT.finditer(body)]
    cuts = [cut for cut in cuts if cut >= 18 and len(body[:cut].split()) >= 4]
    if roll < 0.65 and cuts:
        body = body[: rng.choice(cuts)]
    elif roll < 0.75 and len(parts := clauses(body)) > 2:
        body = body.replace(parts[rng.randrange(1, len(parts))], "", 1)
        body = re.sub(r"\s+", " ", re.sub(r"\s*,\s*(?:,\s*)+", ", ", body)).strip(" ,;")
    found = SUBJECT.match(body) if rng.random() < 0.55 else None
    if not found or found[1].split()[0].lower() in _NO_SUBJECTS:
        return body  # otherwise a pronoun takes the place of the subject
    person = _PERSON.search(knowledge[:160]) and not found[1].lower().startswith(("the ", "a "))
    pronoun = "they" if found[2] in ("are", "were", "have") else "he" if person else "it"
    return pronoun + body[found.end(1) :]


def reword(text: str, rng: random.Random) -> str:
    """Replaces some words by synonyms, and some numbers by words."""
    for old, new in rng.sample(SYNONYMS, len(SYNONYMS)):
        if rng.random() < 0.5:
            text = replace_word(text, old, new)
    if rng.random() < 0.4:
        for number, word in enumerate(NUMBERS[1:], start=2):
            text = re.sub(rf"(?<![\w,.]){number}(?![\w,.])", word, text, count=1)
    return text


def add_opening(text: str, rng: random.Random) -> str:
    """Begins the text as a speaker might, without claiming anything more."""
    roll = rng.random()
    if roll < 0.45:
        return text
    if roll < 0.85:
        return rng.choice(OPENERS) + uncapitalise(text)
    return rng.choice(WRAPS).format(uncapitalise(text))


def vary_spelling(text: str, rng: random.Random) -> str:
    """Varies case, spacing and punctuation as corpora do, so that these do not give the label away."""
    text = text.strip()
    if text[-1:] not in ".!?" and rng.random() < 0.6:
        text += rng.choice((".", ".", ".", "!"))
    case = rng.random()
    if case < 0.5:
        text = text.lower()
    elif case < 0.9:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.4:  # as the Penn Treebank spaces it
        text = re.sub(r"(\w)n't\b", r"\1 n't", text)
        text = re.sub(r"(\w)('s|'re|'ve|'m|'ll|'d)\b", r"\1 \2", text)
        text = re.sub(r"([,.!?;)])(?=\s|$)", r" \1", text)
    return re.sub(r"\s+", " ", text).strip()


@dataclass(frozen=True, slots=True)
class Pool:
    """Replacements for the edits, collected from all documents."""

    sentences: list[str]
    names: list[str]
    words: dict[str, list[str]]  # by ending
    chat: Sequence[str]

    @classmethod
    def of(cls, documents: Sequence[Sequence[str]], chat: Sequence[str]) -> "Pool":
        """Collects names and words from documents.

        Args:
            documents: Sentences, in lists of those that belong together.
            chat: Small talk that no document supports.
        """
        sentences = [sentence for document in documents for sentence in document]
        names = {found.group().rstrip(".'’-") for sentence in sentences for found in _NAME.finditer(sentence)}
        words: dict[str, list[str]] = {}
        for word in sorted({word for sentence in sentences for word in LONG_ASCII_WORD.findall(sentence)} - COMMON):
            words.setdefault(_ending(word), []).append(word)
        return cls(sentences, sorted(name for name in names if len(name) > 3), words, chat)


def _ending(word: str) -> str:
    return next((ending for ending in ENDINGS if word.endswith(ending)), "")


def swap_number(text: str, pool: Pool, rng: random.Random) -> str | None:
    """Replaces a number, in digits or in words, by another."""
    found = list(_NUMBER.finditer(text))
    words = [word for word in NUMBERS[1:] if re.search(rf"\b{word}\b", text, re.I)]
    if words and (not found or rng.random() < 0.4):
        word = rng.choice(words)
        return replace_word(text, word, rng.choice([other for other in NUMBERS[1:] if other != word]))
    if not found:
        return None
    chosen = rng.choice(found)
    other = other_number(chosen.group(), rng)
    return text[: chosen.start()] + other + text[chosen.end() :] if other != chosen.group() else None


def other_number(written: str, rng: random.Random) -> str:
    """Draws another number in the same spelling; a year mostly stays a year."""
    digits = written.replace(",", "")
    if "." in digits:
        return f"{float(digits) * rng.choice([0.5, 1.3, 2.0, 10.0]):.1f}"
    value = int(digits)
    if 1000 < value < 2100:  # a year
        return str(value + rng.choice([-60, -25, -11, -7, -4, -2, -1, 1, 2, 3, 6, 10, 30]))
    step = max(1, int(value * 0.3))
    other = max(1, value + rng.choice([-step, step, 2 * step, 1, 2]))
    return f"{other:,}" if "," in written else str(other)


def swap_name(text: str, pool: Pool, rng: random.Random) -> str | None:
    """Replaces a name by another."""
    found = [name for name in _NAME.finditer(text) if len(name.group()) > 2]
    if not found or not pool.names:
        return None
    chosen = rng.choice(found)
    other = rng.choice(pool.names)
    return None if other.lower() in text.lower() else text[: chosen.start()] + other + text[chosen.end() :]


def swap_words(text: str, pool: Pool, rng: random.Random) -> str | None:
    """Replaces one or two words by others with the same ending."""
    changed = _swap_word(text, pool, rng)
    return (_swap_word(changed, pool, rng) or changed) if changed and rng.random() < 0.5 else changed


def _swap_word(text: str, pool: Pool, rng: random.Random) -> str | None:
    found = [word for word in LONG_ASCII_WORD.finditer(text) if word.group() not in COMMON]
    if not found:
        return None
    chosen = rng.choice(found)
    others = pool.words.get(_ending(chosen.group()))
    other = rng.choice(others) if others else ""
    return None if not other or other in text else text[: chosen.start()] + other + text[chosen.end() :]


def distort(text: str, pool: Pool, rng: random.Random) -> str | None:
    """Negates, exaggerates or reverses the statement."""
    if rng.random() < 0.25:
        verb = _VERB.search(text)
        return text[: verb.end()] + " not" + text[verb.end() :] if verb else None
    fitting = [pair for pair in DISTORTIONS if re.search(rf"(?<!\w){re.escape(pair[0])}(?!\w)", text, re.I)]
    return replace_word(text, *rng.choice(fitting)) if fitting else None


def swap_subject(text: str, pool: Pool, rng: random.Random) -> str | None:
    """Replaces the subject by that of another sentence."""
    subject = SUBJECT.match(text)
    if not subject:
        return None
    pronouns = ("it", "he", "she", "they", "there", "this")
    for _ in range(4):
        other = SUBJECT.match(rng.choice(pool.sentences))
        if other and other[1].lower() not in text.lower() and other[1].lower() not in pronouns:
            return other[1] + text[subject.end(1) :]
    return None


def add_claim(text: str, pool: Pool, rng: random.Random) -> str:
    """Adds an unsupported claim before or after the statement."""
    roll, body = rng.random(), without_end(text)
    if roll < 0.28:
        return body + rng.choice((". ", "! ", ", and ", ". ", " but ")) + rng.choice(PERSONAL)
    if roll < 0.40:
        return f"{rng.choice(PERSONAL)} {text}"
    if roll < 0.60 and pool.chat:
        remark = rng.choice(pool.chat)
        return f"{body}. {remark}" if rng.random() < 0.5 else f"{remark.rstrip()} {body}"
    if roll < 0.80:
        other = clauses(without_brackets(rng.choice(pool.sentences)))
        return body + rng.choice((", ", " and ", ". ")) + uncapitalise(rng.choice(other))
    if roll < 0.90:
        return rng.choice(PERSONAL_OPENERS) + uncapitalise(" ".join(body.split()[: rng.randint(2, 9)]))
    return f"{body} {rng.choice(ADDITIONS)}"


FAITHFUL_KIND = "faithful"
# P(hallucinated) of each kind.
PROBABILITY = {
    FAITHFUL_KIND: 0.10,
    "claim": 0.85,
    "name": 0.80,
    "number": 0.75,
    "word": 0.75,
    "distortion": 0.70,
    "subject": 0.75,
    "other": 0.95,
    "chat": 0.97,
}
# How often each kind is tried first, relative to the others.
CHANCES = {"claim": 7, "name": 3, "number": 3, "word": 4, "distortion": 3, "subject": 2, "other": 3, "chat": 2}
_EDITS: dict[str, Callable[[str, Pool, random.Random], str | None]] = {
    "claim": add_claim,
    "name": swap_name,
    "number": swap_number,
    "word": swap_words,
    "distortion": distort,
    "subject": swap_subject,
}


class Pair(NamedTuple):
    """A sentence with a response made from it; `document` and `sentence` are its indices among the documents."""

    document: int
    sentence: int
    knowledge: str
    response: str
    kind: str


def make_pairs(documents: Sequence[Sequence[str]], chat: Sequence[str] = (), seed: int = 0) -> Iterator[Pair]:
    """Makes a faithful and, where an edit applies, a hallucinated response for every sentence.

    The same arguments always give the same pairs.

    Args:
        documents: Sentences, in lists of those that belong together.
        chat: Small talk that no document supports.
    """
    pool = Pool.of(documents, chat)
    for d, document in enumerate(documents):
        for s, knowledge in enumerate(document):
            if len(knowledge.split()) < 5:
                continue
            rng = random.Random(f"{seed}|{d}|{s}")
            faithful = vary_spelling(add_opening(reword(extract(knowledge, rng), rng), rng), rng)
            yield Pair(d, s, knowledge, faithful, FAITHFUL_KIND)
            if made := hallucinated_response(knowledge, document, pool, rng):
                yield Pair(d, s, knowledge, *made)


def hallucinated_response(
    knowledge: str, document: Sequence[str], pool: Pool, rng: random.Random
) -> tuple[str, str] | None:
    """Makes a response that the knowledge does not support, and names its kind."""
    base = reword(extract(knowledge, rng), rng) if rng.random() < 0.5 else extract(knowledge, rng)
    order = [kind for kind, chances in CHANCES.items() for _ in range(chances)]
    rng.shuffle(order)
    for kind in order:
        if kind == "other":
            # Another statement, mostly of the same document, which is harder to detect.
            others = [other for other in document if other != knowledge] if rng.random() < 0.7 else pool.sentences
            other = rng.choice(others) if others else knowledge
            statement = extract(other, rng) if other != knowledge else ""
            response = statement if statement and statement.lower()[:40] not in knowledge.lower() else None
        elif kind == "chat":
            response = rng.choice(pool.chat) if pool.chat else None
        else:
            response = _EDITS[kind](base, pool, rng)
        if response and response.strip().lower() != base.strip().lower():
            return vary_spelling(response if kind == "chat" else add_opening(response, rng), rng), kind
    return None
