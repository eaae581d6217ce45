"""Retrieves knowledge for examples that have none, as the block `retrieval` configures."""

import hashlib
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example
from faithkit.settings.config_files import EMBEDDED
from faithkit.words import sentences, unicode_words
from faithkit_workflows.settings.engines import RetrievalOptions

K1, B = 1.5, 0.75
log = logging.getLogger("faithkit")


class Bm25:
    """Finds the passages that share the rare words of a query (Robertson & Zaragoza 2009, Okapi weights).

    score(q, p) = sum over the distinct words w of q of idf(w) * f (k1 + 1) / (f + k1 (1 - b + b |p| / mean |p|))
    idf(w) = ln(1 + (N - n + 1/2) / (n + 1/2))

    f: how often w occurs in p; |p|: words of p; N: passages; n: passages with w. The 1 within idf keeps it above 0.
    Words are `faithkit.words.unicode_words`.

    >>> Bm25(["The Danube is long.", "A cat sleeps.", "The cat is old."]).best("How long is the Danube?", 2)
    ['The Danube is long.', 'The cat is old.']

    Args:
        k1: How much a second occurrence of a word adds.
        b: How much long passages are held back, 0 to 1.
    """

    def __init__(self, passages: Sequence[str], *, k1: float = K1, b: float = B):
        self.passages = list(passages)
        word_counts = [Counter(unicode_words(passage)) for passage in self.passages]
        lengths = np.array([counts.total() for counts in word_counts], np.float64)
        mean = lengths.mean() if lengths.any() else 1.0
        where: defaultdict[str, list[int]] = defaultdict(list)
        for place, counts in enumerate(word_counts):
            for word in counts:
                where[word].append(place)
        self._weights: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        for word, places in where.items():
            rows = np.array(places, np.int64)
            often = np.array([word_counts[place][word] for place in places], np.float64)
            rarity = math.log(1 + (len(word_counts) - len(places) + 0.5) / (len(places) + 0.5))
            saturation = often + k1 * (1 - b + b * lengths[rows] / mean)
            self._weights[word] = (rows, rarity * often * (k1 + 1) / saturation)

    def scores(self, query: str) -> NDArray[np.float64]:
        """Scores each passage."""
        found = np.zeros(len(self.passages))
        for word in dict.fromkeys(unicode_words(query)):
            if word in self._weights:
                rows, weights = self._weights[word]
                found[rows] += weights
        return found

    def best(self, query: str, count: int) -> list[str]:
        """Finds the passages with the highest scores, best first, of equals the first; never without a shared word."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.passages[place] for place in order if scores[place] > 0]


KEY = "retrieval.path"
SUFFIXES = (".txt", ".md")
MAX_WORDS = 120  # of a passage


def read_passages(path: str) -> list[str]:
    """Reads the passages of a folder or file of texts, or `embedded`: the knowledge of the embedded corpus.

    Raises:
        UserError: There is none, or it is not a text.
    """
    if path == EMBEDDED:
        source = build_source(EMBEDDED, EMBEDDED)
        every = (one for split in source.split_names() for one in read_examples(source, split, ReadReport()))
        return list(dict.fromkeys(one.knowledge for one in every if one.knowledge.strip()))
    root = Path(path).expanduser()
    files = [root] if root.is_file() else sorted(f for f in root.rglob("*") if f.suffix.lower() in SUFFIXES)
    passages: list[str] = []
    for file in files:
        try:
            passages += split_passages(file.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise UserError(f"{KEY}: this file is not UTF-8 text", place=str(file), hint="save it as UTF-8") from error
        except OSError as error:
            problem = f"{KEY}: this file cannot be read: {error.strerror}"
            raise UserError(problem, place=str(file), hint=f"chmod u+r {file}") from error
    if not passages:
        problem = "the texts are empty" if files else "no texts are here" if root.exists() else "no such folder"
        hint = f"name a folder with {' or '.join(SUFFIXES)} files"
        raise UserError(f"{KEY}: {problem}", place=path, hint=hint)
    return list(dict.fromkeys(passages))


def split_passages(text: str) -> Iterator[str]:
    """Divides a text into paragraphs, and long ones behind sentences; white space becomes single spaces."""
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        words = 0
        passage: list[str] = []
        for sentence in sentences(" ".join(paragraph.split())):
            size = len(sentence.split())
            if passage and words + size > MAX_WORDS:
                yield " ".join(passage)
                passage, words = [], 0
            passage.append(sentence)
            words += size
        if passage:
            yield " ".join(passage)


def retrieve(config: Mapping[str, Any], examples: Sequence[Example]) -> tuple[list[Example], dict[str, Any]] | None:
    """Retrieves passages for the examples; returns them with a summary, or None if `retrieval.path` is not set.

    An example without knowledge gets the best passages, a paragraph each; others stay as they are.
    """
    options = RetrievalOptions(**(config.get("retrieval") or {}))
    if options.path is None:
        return None
    index = _build_index(options.path)
    found, num_found, num_without = list[Example](), 0, 0
    for example in examples:
        last = example.history[-1].text if example.history else ""
        is_without = not example.knowledge.strip()
        passages = index.best(f"{last}\n{example.response}", options.num_passages) if is_without else ()
        found.append(replace(example, knowledge="\n\n".join(passages)) if passages else example)
        num_without += is_without
        num_found += bool(passages)
    counts = (f"{num_found:,}", f"{num_without:,}", options.path)
    log.info("retrieval: %s of %s examples without knowledge got passages of %s", *counts)
    digest = hashlib.sha256("\0".join(index.passages).encode(errors="surrogatepass")).hexdigest()
    summary = {"passages": len(index.passages), "hash": digest[:12]}
    return found, summary | {"examples_found": num_found, "examples_without_knowledge": num_without}


@lru_cache(maxsize=1)
def _build_index(path: str) -> Bm25:
    return Bm25(read_passages(path))
