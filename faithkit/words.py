"""Splits texts into words and sentences by regular expressions.

The kinds of words differ on purpose, and each metric, feature and baseline names the one that it counts:

| function           | "Don't, Zoë's 3.5" gives              | counted by                                          |
|--------------------|---------------------------------------|-----------------------------------------------------|
| `unicode_words`    | don t zoë s 3 5                       | baselines, evidence, `best_sentences`, made errors  |
| `ascii_words`      | don t zo s 3 5                        | ROUGE, whose rules are so                           |
| `apostrophe_words` | don't zoë's 3 5                       | metrics of responses, control features              |
| `words_and_marks`  | don't , zoë's 3 . 5                   | density and coverage                                |
| `clitic_tokens`    | don't , zo s 3 . 5                    | the features of `data_modules.weak`                 |

Those of any script keep accents and vowel signs with their letter and return composed characters (NFC), so that text of
a PDF or a Mac, whose "ë" is an e and a mark, has the words of the same text typed. ASCII text takes a short path.

Trained and cached things depend on these values: caches of encodings and of negatives are keyed by `VERSION`, and the
sidecar of every model holds it. Raise it with any change of what a function here returns.

The overlap of two lists of words is computed by bits: an integer holds all places of a word, so one operation compares
them all. Both algorithms are linear in operations on integers as long as one text, in place of a table of both lengths.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from unicodedata import category, normalize

VERSION = 2

LONG_ASCII_WORD = re.compile(r"\b[a-z]{4,}\b")
_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_APOSTROPHE_WORD = re.compile(r"\w+(?:'\w+)*")
_WORD_OR_MARK = re.compile(r"\w+(?:'\w+)*|[^\w\s]")
_PARTING = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ufe00-\ufe0f]")  # Thai to Khmer; variants of glyphs
_CLITIC_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?.,]")


def word_set(text: str) -> frozenset[str]:
    """Splits a text at white space into a set, for tables of words."""
    return frozenset(text.split())


STOP_WORDS = word_set(  # English words that any text has, whatever it is about
    "a an the of in on at to for and or but is are was were be been being it its he she they him his her their this "
    "that these those i you we my your me our us as by with from not no do does did have has had so if than then there "
    "which who whom what when where will would can could"
)
ARTICLES = word_set("a an the")


def unicode_words(text: str) -> list[str]:
    """Finds runs of letters, digits and underscores of any script, in lower case; an apostrophe parts words."""
    return _find(_WORD, text)


def unicode_content_words(text: str) -> list[str]:
    """Finds `unicode_words` that are no stop words."""
    return [word for word in unicode_words(text) if word not in STOP_WORDS]


def cased_words(text: str) -> list[str]:
    """Finds `unicode_words` with their capitals: the same words at the same places of the list."""
    return [normalize("NFC", word) for word in _with_marks(_WORD, text).findall(text)]


def word_places(text: str, begin: int = 0, end: int = sys.maxsize) -> Iterator[tuple[int, int, str]]:
    """Finds where each of `unicode_words` begins and ends in the unchanged text, and the word."""
    for found in _with_marks(_WORD, text).finditer(text, begin, end):
        yield found.start(), found.end(), normalize("NFC", found[0].lower())


def ascii_words(text: str) -> list[str]:
    """Finds runs of a-z and 0-9, in lower case; any other character parts words."""
    return _ASCII_WORD.findall(text.lower())


def apostrophe_words(text: str) -> list[str]:
    """Finds words of any script, in lower case; an apostrophe within a word stays, other punctuation goes."""
    return _find(_APOSTROPHE_WORD, text.replace("’", "'"))


def apostrophe_content_words(text: str) -> list[str]:
    """Finds `apostrophe_words` that are no stop words."""
    return [word for word in apostrophe_words(text) if word not in STOP_WORDS]


def answer_words(text: str) -> list[str]:
    """Finds `apostrophe_words` that are no articles: two short answers are compared by these."""
    return [word for word in apostrophe_words(text) if word not in ARTICLES]


def words_and_marks(text: str) -> list[str]:
    """Finds `apostrophe_words`, and every punctuation mark as a separate token."""
    return _find(_WORD_OR_MARK, text.replace("’", "'"))


def clitic_tokens(text: str) -> list[str]:
    """Finds words of a-z and 0-9 with one clitic ("n't", "'s") at most, joined to it, and the marks ! ? . and comma."""
    return _CLITIC_TOKEN.findall(text.lower().replace("’", "'").replace(" n't", "n't").replace(" '", "'"))


def _find(pattern: re.Pattern[str], text: str) -> list[str]:
    """Finds what a pattern finds, in lower case and composed."""
    if text.isascii():
        return pattern.findall(text.lower())
    # Word by word, as `word_places` has to: the lower case of "Σ" depends on the letters around it.
    return [normalize("NFC", word.lower()) for word in _with_marks(pattern, text).findall(text)]


def _with_marks(pattern: re.Pattern[str], text: str) -> re.Pattern[str]:
    """The pattern that finds words in this text together with the marks behind their letters."""
    return pattern if text.isascii() else _marked(pattern.pattern)


@cache
def _marked(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\w+", rf"\w[\w{_marks()}]*"))


@cache
def _marks() -> str:
    """The combining marks that belong to a word.

    Those of scripts without spaces go on parting words: the text between two of them is nearer to a word than a
    whole sentence is. But U+102E stays, as NFC joins it to a letter.
    """
    return mark_ranges(lambda mark: mark == "\u102e" or not _PARTING.match(mark))


def mark_ranges(counts: Callable[[str], object]) -> str:
    """The combining marks that count, as ranges of a regular expression; only where a text needs them: it takes time.

    Above U+1EFFF only variants of glyphs are left.
    """
    marks = (ord(c) for c in map(chr, range(0x300, 0x1F000)) if category(c) in ("Mn", "Mc") and counts(c))
    runs = ([code for _, code in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0]))
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


_ENDS = ".!?।॥۔؟።"  # Latin, Hindi, Urdu, Arabic and Amharic: white space follows
_WIDE_ENDS = "。！？"  # of Chinese and Japanese: nothing follows but perhaps a closing mark
_CLOSING = "」』）”’"
_SENTENCE_END = re.compile(
    rf"(?<=[{_ENDS};؛])\s+|(?:(?<=[{_WIDE_ENDS}；])|(?<=[{_WIDE_ENDS}；][{_CLOSING}]))(?![{_WIDE_ENDS}；{_CLOSING}])\s*"
)
_SENTENCE = re.compile(rf"\S[^\n]*?(?:[{_ENDS}]+(?=\s|$)|[{_WIDE_ENDS}]+[{_CLOSING}]*|(?=\n)|$)")


def sentences(text: str) -> list[str]:
    """Splits a text after `.`, `!`, `?` and `;` before white space, and after the same marks of other scripts."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Finds where each sentence of a text begins and ends; a line end is the end of a sentence too."""
    return [found.span() for found in _SENTENCE.finditer(text)]


def best_sentences(knowledge: str, response: str, max_words: int) -> str:
    """Cuts knowledge of more than `max_words` to the sentences that share most content words with the response.

    Words of any script are compared. The sentences keep their order. The best one stays however long it is; after it,
    each that still fits.
    """
    if len(knowledge.split()) <= max_words:
        return knowledge
    response_words, parts = set(unicode_content_words(response)), sentences(knowledge)
    shared = [len(response_words & set(unicode_content_words(part))) for part in parts]
    kept: list[int] = []
    num_words = 0
    for i in sorted(range(len(parts)), key=lambda i: -shared[i]):  # of equals, the first
        length = len(parts[i].split())
        if not kept or num_words + length <= max_words:
            kept.append(i)
            num_words += length
    return " ".join(parts[i] for i in sorted(kept))


def positions(tokens: Sequence[str]) -> dict[str, int]:
    """Maps each distinct token to a bit mask: bit i is 1 if the token stands at index i."""
    places: dict[str, int] = {}
    for i, token in enumerate(tokens):
        places[token] = places.get(token, 0) | 1 << i
    return places


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Computes the length of the longest common subsequence (Hyyrö 2004, bit-parallel)."""
    places, every = positions(first), (1 << len(first)) - 1
    free = every  # a bit is cleared where the length grows by one along the first text
    for token in second:
        hit = free & places.get(token, 0)
        free = (free + hit | free - hit) & every
    return len(first) - free.bit_count()


def greedy_runs(response: Sequence[str], knowledge: Sequence[str]) -> list[int]:
    """Finds the lengths of the response's fragments that occur in the knowledge, each the longest from its place.

    The greedy matching of Grusky et al. (2018), section 4: from the left, a fragment is taken whole, then the next.
    """
    places = positions(knowledge)
    runs: list[int] = []
    ends, length = 0, 0  # where in the knowledge the present fragment may end
    for token in response:
        here = places.get(token, 0)
        if ends and (longer := ends << 1 & here):
            ends, length = longer, length + 1
            continue
        if length:
            runs.append(length)
        ends, length = here, int(here > 0)
    if length:
        runs.append(length)
    return runs


def longest_run(response: Sequence[str], knowledge: Sequence[str]) -> int:
    """Computes the length of the longest run of tokens that both have: the longest common substring.

    >>> longest_run("a b c d".split(), "a b x b c d".split())
    3
    """
    places = positions(knowledge)
    single = [places.get(token, 0) for token in response]
    ends, length = single, 0  # by the place in the response: where in the knowledge a run of `length + 1` ends
    while any(ends):
        length += 1
        ends = [before << 1 & here for before, here in zip([0, *ends], single, strict=False)]
    return length
