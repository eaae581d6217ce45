"""Words of a text: every tokenisation by regular expression stands here, side by side.

They differ on purpose, and each metric, feature and baseline says which one it counts:

| function           | "Don't, Zoë's 3.5" gives              | counted by                                          |
|--------------------|---------------------------------------|-----------------------------------------------------|
| `unicode_words`    | don t zoë s 3 5                       | baselines, the tagger's evidence, negatives         |
| `ascii_words`      | don t zo s 3 5                        | ROUGE, overlap of sentences with responses          |
| `apostrophe_words` | don't zoë's 3 5                       | metrics of responses, control features              |
| `words_and_marks`  | don't , zoë's 3 . 5                   | density and coverage                                |
| `clitic_tokens`    | don't , zo s 3 . 5                    | the features of `data_modules.weak`                 |

Trained and cached things depend on these values: caches of encodings and of negatives are keyed by `VERSION`, and the
sidecar of every model holds it. Raise it with any change of what a function here returns.
"""

import re

VERSION = 1

UNICODE_WORD = re.compile(r"\w+")  # for those who need the places of words too
LONG_ASCII_WORD = re.compile(r"\b[a-z]{4,}\b")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_APOSTROPHE_WORD = re.compile(r"\w+(?:'\w+)*")
_WORD_OR_MARK = re.compile(r"\w+(?:'\w+)*|[^\w\s]")
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
    return UNICODE_WORD.findall(text.lower())


def ascii_words(text: str) -> list[str]:
    """Finds runs of a-z and 0-9, in lower case; any other character parts words."""
    return _ASCII_WORD.findall(text.lower())


def ascii_content_words(text: str) -> list[str]:
    """Finds `ascii_words` that are no stop words."""
    return [word for word in ascii_words(text) if word not in STOP_WORDS]


def apostrophe_words(text: str) -> list[str]:
    """Finds words of any script, in lower case; an apostrophe within a word stays, other punctuation goes."""
    return _APOSTROPHE_WORD.findall(_straight_apostrophes(text))


def apostrophe_content_words(text: str) -> list[str]:
    """Finds `apostrophe_words` that are no stop words."""
    return [word for word in apostrophe_words(text) if word not in STOP_WORDS]


def answer_words(text: str) -> list[str]:
    """Finds `apostrophe_words` that are no articles: two short answers are compared by these."""
    return [word for word in apostrophe_words(text) if word not in ARTICLES]


def words_and_marks(text: str) -> list[str]:
    """Finds `apostrophe_words`, and every punctuation mark as a token of its own."""
    return _WORD_OR_MARK.findall(_straight_apostrophes(text))


def clitic_tokens(text: str) -> list[str]:
    """Finds words of a-z and 0-9 with one clitic ("n't", "'s") at most, joined to it, and the marks ! ? . and comma."""
    return _CLITIC_TOKEN.findall(_straight_apostrophes(text).replace(" n't", "n't").replace(" '", "'"))


def _straight_apostrophes(text: str) -> str:
    return text.lower().replace("’", "'")
