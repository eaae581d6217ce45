"""Rewordings that keep the meaning of a text: parts of it, synonyms, openings, and ways of spelling."""

import random
import re
from pathlib import Path

from data_modules.reading.formats import read_sections
from faithkit.words import word_set

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
    elif roll < 0.75:
        body = _without_clause(body, rng)
    return _with_pronoun(body, knowledge) if rng.random() < 0.55 else body


def _without_clause(body: str, rng: random.Random) -> str:
    parts = clauses(body)
    if len(parts) < 3:
        return body
    body = body.replace(parts[rng.randrange(1, len(parts))], "", 1)
    return re.sub(r"\s+", " ", re.sub(r"\s*,\s*(?:,\s*)+", ", ", body)).strip(" ,;")


def _with_pronoun(body: str, knowledge: str) -> str:
    found = SUBJECT.match(body)
    if not found or found[1].split()[0].lower() in _NO_SUBJECTS:
        return body
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
