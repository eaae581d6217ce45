"""Rewordings that keep the meaning of a text: parts of it, synonyms, openings, and ways of spelling."""

import random
import re

from faithkit.words import word_set

# Phrases before or around a response that claim nothing.
OPENERS = (
    "yes, ", "yeah, ", "yes! ", "yea ", "well, ", "oh, ", "no, ", "right, ", "sure! ", "actually, ", "indeed, ",
    "absolutely! ", "yep. ", "exactly, ", "not really, ", "oh yes, ", "ok, ", "hi! ", "ah, ", "so ",
)  # fmt: skip
WRAPS = (
    "did you know that {}?", "did you know {}?", "i know that {}", "i think {}", "apparently {}", "it is true that {}",
    "yes, i know {}", "well, i believe {}", "i do know that {}", "i read that {}",
)  # fmt: skip

# Claims that no source supports.
PERSONAL = (
    "i love it!", "i love that.", "it is my favorite.", "i have never tried it.", "i used to do that as a kid.",
    "my family loves it.", "i would love to go there some day.", "i have been there once.", "it is so good.",
    "i wish i could do that.", "i really enjoy it.", "my friend told me about it.", "i think it is amazing.",
    "it is a great way to relax.", "they are pretty great!", "i am not a big fan.", "it must be very expensive.",
    "it has been around for a long time.", "i grew up with it.", "that is why it is so popular.",
    "i have been doing it for years.", "i do not know much about it.", "it took a long time to catch on.",
    "people still love it today.", "my dad has one.", "i hear it is very difficult.", "everyone should try it.",
    "it is one of the best in the world.", "i can not imagine that.", "it was really interesting.",
    "i am not sure who did it.", "i saw it last year.", "they are very popular these days.", "it is beautiful.",
)  # fmt: skip
PERSONAL_OPENERS = (
    "i love ", "i really like ", "i have never heard of ", "i am a big fan of ", "my favorite is ", "i used to like ",
    "i have always wanted to see ", "have you ever tried ", "i am not sure about ", "do you like ", "my wife loves ",
    "i do not like ",
)  # fmt: skip
ADDITIONS = (
    "for many years", "in the world", "since the 1980s", "in new york", "because it is cheap", "by most people",
    "every day", "in the 19th century", "and that is why people like it", "than any other", "to this day",
    "as a hobby", "with his brother", "when i was young", "in history",
)  # fmt: skip

# Wordings and others with the same meaning.
SYNONYMS = (
    ("united states", "us"), ("u.s.", "us"), ("approximately", "about"), ("including", "such as"),
    ("usually", "typically"), ("typically", "usually"), ("often", "frequently"), ("many", "a lot of"),
    ("large", "big"), ("located", "situated"), ("several", "multiple"), ("is known as", "is called"),
    ("is called", "is known as"), ("started", "began"), ("began", "started"), ("purchase", "buy"), ("created", "made"),
    ("founded", "established"), ("children", "kids"), ("movie", "film"), ("film", "movie"), ("although", "though"),
    ("commonly", "often"), ("however,", "but"), ("also known as", "also called"), ("various", "different"),
    ("over", "more than"), ("more than", "over"), ("consists of", "is made up of"), ("is based on", "comes from"),
)  # fmt: skip
# Wordings and others that claim more, or the opposite.
DISTORTIONS = (
    ("one of the most", "the most"), ("one of the", "the"), ("may", "always"), ("can be", "is always"),
    ("some", "all"), ("many", "all"), ("most", "all"), ("often", "always"), ("usually", "always"),
    ("sometimes", "always"), ("largest", "smallest"), ("first", "last"), ("more", "less"), ("before", "after"),
    ("early", "late"), ("north", "south"), ("east", "west"), ("high", "low"), ("most", "least"), ("old", "new"),
    ("male", "female"), ("after", "before"), ("increase", "decrease"), ("popular", "unpopular"),
    ("american", "british"), ("british", "american"), ("century", "decade"), ("million", "billion"),
    ("second", "third"), ("late", "early"), ("man", "woman"), ("winter", "summer"), ("father", "brother"),
    ("son", "father"), ("professional", "amateur"),
)  # fmt: skip

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ENDINGS = (
    "ing",
    "ed",
    "ly",
    "tion",
    "ous",
    "ist",
    "er",
    "ies",
    "s",
)  # words with the same ending may replace each other
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
