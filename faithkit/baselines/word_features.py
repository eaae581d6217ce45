"""Baselines of counted words: boosted trees on all counts, and one count with a threshold, which also marks spans.

Compare every detector with `CountedFeatures` if its training rows are known: one that does not beat it has learnt no
more than counting. It is fitted on the detector's training rows, its threshold on the detector's validation rows.
`unsupported_share` and the functions after it need no training: words that the knowledge lacks are counted or
marked.

>>> from faithkit.baselines.word_features import CountedFeatures
>>> knowledge = ["The kiwi is a small bird of New Zealand."] * 40
>>> response = ["The kiwi is a bird.", "Penguins eat fish."] * 20
>>> model = CountedFeatures.fit(knowledge, response, [0, 1] * 20)
>>> [bool(score > 0.5) for score in model.score(knowledge[:2], response[:2])]
[False, True]
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf, nextafter
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.calibration import choose_threshold, predict_by_threshold
from faithkit.records import HALLUCINATED, UNTYPED, Example, Prediction, Span
from faithkit.words import STOP_WORDS, cased_words, greedy_runs, lcs_length, unicode_words, word_places, word_set

MAX_ROWS = 20_000  # of training rows, those that the trees are fitted on: more change little and cost time
MIN_ROWS = 20  # fewer of a class teach nothing
# Of a knowledge, the words in which copied runs and the common subsequence are looked for: both read it once for every
# word of the response. All that is counted without regard to places reads the whole knowledge.
MAX_WORDS = 2_000
NEGATIONS = word_set("not no never nor nothing nobody none without t cannot hardly barely less least few little")
FIRST_PERSON = word_set("i my me mine myself we our us")
MARKS = ",.?!'\"-:;()"
FEATURES = (
    "response words",
    "knowledge words",
    "words, response / knowledge",
    "response characters",
    "characters a word",
    "unknown words",
    "unknown share",
    "unknown content words",
    "unknown content share",
    "unknown stop words",
    "knowledge words used, share",
    "knowledge content words left out",
    "unknown pairs",
    "unknown pairs, share",
    "unknown triples, share",
    "common subsequence, share",
    "longest copied run",
    "copied runs",
    "longest unknown run",
    "unknown runs",
    "first unknown place",
    "last unknown place",
    "mean unknown place",
    "unknown numbers",
    "known numbers",
    "unknown names",
    "known names",
    "repeated words",
    "negations",
    "negations, response - knowledge",
    "first person",
    *(f"marks {mark}" for mark in MARKS),
)
WORD_EVIDENCE = (
    "unknown share",
    "unknown content share",
    "unknown pairs, share",
    "unknown numbers",
    "unknown names",
    "response words",
    "knowledge words",
    "negations, response - knowledge",
)
Values = NDArray[np.float64]
RUN = 4  # characters that are compared together; a space parts words


@dataclass(frozen=True, slots=True)
class CountedFeatures:
    """Boosted trees on `FEATURES`; fitted by `fit`, or by `fit_counted` with a threshold."""

    trees: Any
    threshold: float = 0.5

    @classmethod
    def fit(
        cls, knowledge: Sequence[str], response: Sequence[str], label: ArrayLike, *, seed: int = 0
    ) -> "CountedFeatures":
        """Fits the trees; labels are 1 (or true) for hallucinated.

        scikit-learn is imported here: that takes 1.3 CPU-seconds, which no start of a script should wait for.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        gold = np.asarray(label, bool)
        rows = np.arange(len(gold)).tolist()
        if len(rows) > MAX_ROWS:
            rows = np.sort(np.random.default_rng(seed).permutation(rows)[:MAX_ROWS]).tolist()
        features = count_features([knowledge[i] for i in rows], [response[i] for i in rows])
        trees = HistGradientBoostingClassifier(
            learning_rate=0.06, max_iter=120, max_leaf_nodes=12, min_samples_leaf=20, l2_regularization=1.0,
            early_stopping=False, random_state=seed,
        )  # fmt: skip
        # On few rows, synchronizing threads takes longer than the work, above all when torch has threads too.
        with threadpool_limits(1 if len(rows) < 5_000 else None, user_api="openmp"):
            return cls(trees.fit(features, gold[rows]))

    def score(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Gives P(hallucinated) of each pair."""
        if not len(response):
            return np.zeros(0)
        scores: NDArray[np.float64] = self.trees.predict_proba(count_features(knowledge, response))[:, 1]
        return scores

    def predictions(self, examples: Sequence[Example]) -> dict[str, Prediction]:
        """Predicts each example's label and score."""
        scores = self.score([e.knowledge for e in examples], [e.response for e in examples])
        return predict_by_threshold((e.id for e in examples), scores.tolist(), self.threshold)


def fit_counted_features(
    train: Sequence[Example], validation: Sequence[Example] = (), *, aim: str = "macro_f1"
) -> CountedFeatures | None:
    """Fits the trees and their threshold; None if the training rows hold too little of a class.

    Args:
        train: The trees are fitted on those with a label.
        validation: The threshold is chosen for `aim` on those with a label; it is 0.5 where there is none.
    """
    known = [example for example in train if example.label]
    gold = [example.label == HALLUCINATED for example in known]
    if min(sum(gold), len(gold) - sum(gold)) < MIN_ROWS:
        return None
    model = CountedFeatures.fit([e.knowledge for e in known], [e.response for e in known], gold)
    if chosen_on := [example for example in validation if example.label]:
        found = model.score([e.knowledge for e in chosen_on], [e.response for e in chosen_on])
        return replace(
            model, threshold=choose_threshold(found, [e.label == HALLUCINATED for e in chosen_on], aim).value
        )
    return model


def count_features(knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
    """Counts `FEATURES` of each pair [pairs, features]."""
    counted = [_count(*pair) for pair in zip(knowledge, response, strict=True)]
    return np.array(counted, np.float64).reshape(-1, len(FEATURES))


@lru_cache(maxsize=8192)  # fits by folds count each row again and again
def _count(knowledge: str, response: str) -> tuple[float, ...]:
    source, words = unicode_words(knowledge), unicode_words(response)
    known, used = set(source), set(words)
    content, known_content = used - STOP_WORDS, known - STOP_WORDS
    places = [i for i, word in enumerate(words) if word not in known]
    unknown, size = used - known, max(1, len(words))
    pairs, known_pairs = set(pairwise(words)), set(pairwise(source))
    triples = set(zip(words, words[1:], words[2:], strict=False))
    known_triples = set(zip(source, source[1:], source[2:], strict=False))
    numbers = {word for word in used if any(c.isdigit() for c in word)}
    cased = zip(cased_words(response)[1:], words[1:], strict=True)
    names = {word for shown, word in cased if shown[0].isupper() and len(shown) > 1}
    first = source[:MAX_WORDS]
    runs, gaps = greedy_runs(words, first), _runs(places)
    negations = sum(word in NEGATIONS for word in words)
    return (
        len(words),
        len(source),
        len(words) / max(1, len(source)),
        len(response),
        len(response) / size,
        len(places),
        len(places) / size,
        len(content - known),
        len(content - known) / max(1, len(content)),
        len(unknown & STOP_WORDS),
        len(used & known) / max(1, len(known)),
        len(known_content - used),
        len(pairs - known_pairs),
        len(pairs - known_pairs) / max(1, len(pairs)),
        len(triples - known_triples) / max(1, len(triples)),
        lcs_length(words, first) / size,
        max(runs, default=0),
        len(runs),
        max(gaps, default=0),
        len(gaps),
        places[0] / size if places else 1.0,
        places[-1] / size if places else 0.0,
        sum(places) / len(places) / size if places else 0.5,
        len(numbers - known),
        len(numbers & known),
        len(names - known),
        len(names & known),
        len(words) - len(used),
        negations,
        negations - sum(word in NEGATIONS for word in source),
        sum(word in FIRST_PERSON for word in words),
        *(response.count(mark) for mark in MARKS),
    )


def _runs(places: Sequence[int]) -> list[int]:
    """The lengths of the runs of places that follow each other."""
    lengths: list[int] = []
    for i, place in enumerate(places):
        if i and place == places[i - 1] + 1:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths


def word_evidence(knowledge: Sequence[str], response: Sequence[str]) -> Values:
    """Computes `WORD_EVIDENCE` of each pair, compressed [pairs, 8]."""
    return compress_counts(count_features(knowledge, response)[:, [FEATURES.index(name) for name in WORD_EVIDENCE]])


def compress_counts(features: Values) -> Values:
    """Takes logarithms, sign kept: an answer ten times as long as any seen would else outweigh all other features."""
    return np.sign(features) * np.log1p(np.abs(features))


def unsupported_share(knowledge: str, response: str) -> float:
    """Computes the share of the response's words that the knowledge lacks, case aside; 0 if there are no words."""
    known = set(unicode_words(knowledge))
    words = unicode_words(response)
    return sum(word not in known for word in words) / len(words) if words else 0.0


def unsupported_grams(knowledge: str, response: str) -> float:
    """Computes the share of the response's runs of four characters that the knowledge lacks, case and marks aside.

    Other forms of a known word share most of theirs, where `unsupported_share` takes them for unknown.
    """
    known, text = (f" {' '.join(unicode_words(each))} " for each in (knowledge, response))
    if text.isspace():
        return 0.0
    length = min(RUN, len(text))  # a word of one letter is shorter with its spaces
    has = {known[place : place + length] for place in range(len(known) - length + 1)}
    runs = [text[place : place + length] for place in range(len(text) - length + 1)]
    return sum(run not in has for run in runs) / len(runs)


def fit_overlap(train: Iterable[Example], aim: str = "macro_f1") -> float | None:
    """Chooses the threshold of `overlap_predictions` for `aim` on labelled examples; None if there are none."""
    known = [example for example in train if example.label]
    if not known:
        return None
    scores = [unsupported_share(example.knowledge, example.response) for example in known]
    return choose_threshold(scores, [example.label == HALLUCINATED for example in known], aim).value


def overlap_predictions(examples: Sequence[Example], threshold: float | None = None) -> dict[str, Prediction]:
    """Predicts hallucinated where too many of the response's words are not in the knowledge; their share is the score.

    Args:
        threshold: As `fit_overlap` gives it. Without one it lies above the median share of the evaluated examples,
            which uses no label: at most half of them are then called hallucinated.
    """
    shares = {example.id: unsupported_share(example.knowledge, example.response) for example in examples}
    if threshold is None:
        threshold = nextafter(median(shares.values()), inf) if shares else 0.5
    return predict_by_threshold(shares, shares.values(), threshold)


class LengthRule(NamedTuple):
    """Calls long responses hallucinated, from a threshold of `length_score` on; short ones where not `longer`."""

    threshold: float
    longer: bool = True

    def score(self, response: str) -> float:
        score = length_score(response)
        return score if self.longer else 1.0 - score


def length_score(response: str) -> float:
    """Maps a response's length in characters to [0, 1): a longer one scores more, 100 characters score a half."""
    return len(response) / (len(response) + 100)


def fit_length(train: Iterable[Example]) -> LengthRule | None:
    """Chooses the threshold of `length_predictions` on labelled examples, and whether long or short is wrong.

    None if there are no labelled examples.
    """
    known = [example for example in train if example.label]
    if not known:
        return None
    gold = [example.label == HALLUCINATED for example in known]
    rules = []
    for longer in (True, False):
        found = choose_threshold([LengthRule(0.0, longer).score(one.response) for one in known], gold)
        rules.append((found.macro_f1, LengthRule(found.value, longer)))
    return max(rules, key=lambda rule: rule[0])[1]


def length_predictions(examples: Sequence[Example], rule: LengthRule | None = None) -> dict[str, Prediction]:
    """Predicts from the length of the response alone.

    Hallucinated responses that were written on demand (HaluEval) are longer, and a detector that is no better than this
    one has learnt nothing else.

    Args:
        rule: As `fit_length` gives it. Without one, what is longer than the median of the examples is hallucinated,
            which uses no label.
    """
    if rule is None:
        scores = [length_score(example.response) for example in examples]
        rule = LengthRule(nextafter(median(scores), inf) if scores else 0.5)
    ids = (example.id for example in examples)
    return predict_by_threshold(ids, (rule.score(example.response) for example in examples), rule.threshold)


def mismatch_predictions(examples: Sequence[Example], threshold: float | None = None) -> dict[str, Prediction]:
    """Adds to `overlap_predictions` a span for every run of unsupported words, in responses called faithful too.

    Each longest run of words that the knowledge lacks, case aside, is one span.
    """
    found = overlap_predictions(examples, threshold)
    for example in examples:
        known = set(unicode_words(example.knowledge))
        runs: list[tuple[int, int]] = []
        goes_on = False
        for start, end, word in word_places(example.response):
            if word not in known:
                runs.append((runs.pop()[0] if goes_on else start, end))
            goes_on = word not in known
        spans = tuple(Span(start=start, end=end, label=UNTYPED) for start, end in runs)
        found[example.id] = replace(found[example.id], spans=spans)
    return found
