"""Divides documents into windows and responses into claims, as the packages of known detectors do.

Their rules count sentences of nltk's Punkt, whose English parameters are the local weights `punkt`.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from data_modules.encoding.tokens import tokenize
from faithkit.packages import needs_package
from faithkit.weights.known_detectors import BY_SENTENCES, EVEN, LINES, TOKENS, WORDS, Windows
from faithkit.weights.local import LOCAL, fetch

LINE_BREAK = "\n"
Count = Callable[[Sequence[str]], list[int]]  # the size of each sentence


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences.

    Raises:
        UserError: nltk is not installed, or the parameters cannot be fetched.
    """
    return list(_punkt().tokenize(text))


@cache
def _punkt() -> Any:
    with needs_package("this detector, which divides texts into sentences,"):
        from nltk.tabdata import PunktDecoder
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    read, parameters, folder = PunktDecoder(), PunktParameters(), fetch(LOCAL["punkt"])
    with (folder / "collocations.tab").open(encoding="utf-8") as lines:
        parameters.collocations = set(read.tab2tups(lines))
    with (folder / "sent_starters.txt").open(encoding="utf-8") as lines:
        parameters.sent_starters = read.txt2set(lines)
    with (folder / "abbrev_types.txt").open(encoding="utf-8") as lines:
        parameters.abbrev_types = read.txt2set(lines)
    with (folder / "ortho_context.tab").open(encoding="utf-8") as lines:
        parameters.ortho_context = read.tab2intdict(lines)
    return PunktSentenceTokenizer(parameters)


def divide(document: str, windows: Windows | None, count: Count) -> list[str]:
    """Divides a document into windows; at least one, which may be empty.

    Args:
        count: Counts the units of each sentence.
    """
    if windows is None:
        return [document]
    return RULES[windows.rule](document, windows.size, count) or [""]


def _fill_with_lines(document: str, size: int, count: Count) -> list[str]:
    """Fills windows with whole sentences; a line break is a sentence of its own."""
    lines = [[*split_sentences(line), LINE_BREAK] for line in document.split(LINE_BREAK)]
    sentences = [sentence for line in lines for sentence in line][:-1]
    filled = [" ".join(part).replace(" \n ", LINE_BREAK).strip() for part in _fill(sentences, size, count)]
    return [window for window in filled if window]


def _fill_with_sentences(document: str, size: int, count: Count) -> list[str]:
    """Fills windows with whole sentences, one a line; before a first sentence that is too long there is an empty one.

    The empty window is the original's, whose score it can decide.
    """
    windows = [LINE_BREAK.join(part).strip(LINE_BREAK) for part in _fill(split_sentences(document), size, count)]
    return [*windows[:-1], *(window.replace(" \n ", LINE_BREAK).strip() for window in windows[-1:])]


def _fill(sentences: Sequence[str], size: int, count: Count) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    filled = 0
    for sentence, length in zip(sentences, count(sentences), strict=True):
        if filled + length > size:
            parts.append([])
            filled = 0
        parts[-1].append(sentence)
        filled += length
    return parts if sentences else []


def _divide_evenly(document: str, size: int, count: Count) -> list[str]:
    """Makes windows of equally many sentences, as many windows as the document has `size` words, and one more."""
    sentences = split_sentences(document)
    num_windows = sum(count([document])) // size + 1
    step = max(len(sentences) // num_windows, 1)
    return [" ".join(sentences[begin : begin + step]) for begin in range(0, len(sentences), step)]


RULES = {LINES: _fill_with_lines, BY_SENTENCES: _fill_with_sentences, EVEN: _divide_evenly}


def counter(unit: str, tokenizer: Any, max_length: int) -> Count:
    """Returns the function that counts a unit.

    Args:
        max_length: Of a longer sentence this many tokens are counted.
    """
    if unit == TOKENS:
        return partial(_count_tokens, tokenizer, max_length)
    return _count_words if unit == WORDS else _count_treebank_words


def _count_tokens(tokenizer: Any, max_length: int, sentences: Sequence[str]) -> list[int]:
    return [min(int(length), max_length) for length in tokenize(tokenizer, sentences).lengths]


def _count_words(sentences: Sequence[str]) -> list[int]:
    return [len(sentence.split()) for sentence in sentences]


def _count_treebank_words(sentences: Sequence[str]) -> list[int]:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [sum(len(words.tokenize(part)) for part in split_sentences(sentence)) for sentence in sentences]
