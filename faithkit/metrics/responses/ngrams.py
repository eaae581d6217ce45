"""Metrics of shared words: knowledge F1, ROUGE, BLEU, distinct-n, and how much of a response is copied.

| metric | equation | use |
|---|---|---|
| knowledge F1 (Shuster et al. 2021) | 2 shared / (words of both), without stop words | a fast sign of grounding; misses negations |
| ROUGE-1, 2, L (Lin 2004, sections 2, 3) | 2 shared / (tokens of both), by n-grams or the longest common subsequence, without stemming | comparison with published systems; rewards the gold wording |
| distinct-n (Li et al. 2016) | different n-grams / all n-grams of all responses | finds systems that repeat phrases; compare on the same examples only |
| BLEU (Papineni et al. 2002, section 2.3) | min(1, exp(1 - r / c)) * exp(mean over n = 1..4 of log p_n), of lengths c and r and clipped precisions p_n | the corpus value, to compare with published systems; a sentence's is noisy |
| density, coverage (Grusky et al. 2018, section 4) | sum of f^2 / R, sum of f / R, over copied fragments of length f in a response of length R | read with faithfulness: copying is faithful |

N-grams of many pairs of texts are counted at once: words become numbers and pairs rows of flat arrays, so that counting
is sorting. Shared n-grams are clipped: of each, the smaller of its counts on the two sides. ROUGE equals the package
rouge-score's (a test compares them) in a twentieth of its time. BLEU's tokenizer is sacrebleu's, and its values equal
sacrebleu's (a test compares them), with smoothing and effective order; a resample of the corpus is scored from the
weighted sums of the counts of every pair.
"""  # noqa: E501

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from faithkit.metrics.classification import safe_ratio
from faithkit.packages import needs_package
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Statistic, Values
from faithkit.words import (
    apostrophe_content_words,
    apostrophe_words,
    ascii_words,
    greedy_runs,
    lcs_length,
    words_and_marks,
)

MAX_ORDER = 4


def bleu_counts(responses: Sequence[str], references: Sequence[str]) -> Values:
    """Counts what BLEU needs [N, 10]: both lengths, then by order the n-grams matched and those of the response."""
    shared = count_shared_grams(tokenize(responses), tokenize(references), MAX_ORDER)
    lengths = [shared[0].first, shared[0].second]
    return np.stack([*lengths, *(s.both for s in shared), *(s.first for s in shared)], axis=1)


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """Splits texts by sacrebleu's `13a` (mteval-v13a), many texts in a call: its rules do not reach across a space."""
    with needs_package("BLEU"):
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenizer = Tokenizer13a()
    tokens: list[list[str]] = []
    for begin in range(0, len(texts), 4096):
        chunk = [text.rstrip() for text in texts[begin : begin + 4096]]
        used = set().union(*chunk)
        mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in used)  # without a meaning
        tokens += [part.split() for part in tokenizer(f" {mark} ".join(chunk)).split(mark)]
    return tokens


def bleu(counts: Values, *, effective_order: bool = False, smooth_no_match: bool = False) -> Values:
    """Computes BLEU of counts [R, 10], from 0 to 100 [R], with sacrebleu's default smoothing (`exp`).

    Args:
        effective_order: Leaves out the orders that a response is too short for, as single sentences need it.
        smooth_no_match: Smooths where no n-gram of any order matches too, as sacrebleu did before 2.0; now that is 0.
    """
    length, reference_length = counts[:, 0], counts[:, 1]
    matched, total = counts[:, 2 : 2 + MAX_ORDER], counts[:, 2 + MAX_ORDER :]
    has, hit = total > 0, matched > 0
    # Each order without a match counts as half a match, a quarter, ... in turn.
    halvings = np.cumsum(has & ~hit, axis=1)
    numerator = np.where(hit, matched, 0.5**halvings)
    precision = np.divide(100 * numerator, total, out=np.ones_like(total), where=has)
    orders = np.maximum(1, has.sum(axis=1)) if effective_order else MAX_ORDER
    score = np.exp(np.log(precision).sum(axis=1) / orders)
    ratio = np.divide(reference_length, length, out=np.ones_like(length), where=length > 0)
    score *= np.where(length < reference_length, np.exp(1 - ratio), 1.0)
    defined = (smooth_no_match | hit.any(axis=1)) & (effective_order | has.all(axis=1))
    return np.where(defined, score, 0.0)


def corpus_bleu(groups: Groups, counts: Values) -> Statistic:
    """Makes a statistic of `bleu` of the corpus."""
    sums = groups.sums(counts)
    return lambda weights: {"bleu": bleu(weights @ sums)}


Texts = Sequence[Sequence[str]]  # each a list of tokens
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SharedGrams:
    """Numbers of n-grams of one order [N]: in the first text of each pair, in the second, and in both."""

    first: Values
    second: Values
    both: Values

    @property
    def f1(self) -> Values:
        """Computes the harmonic mean of both shares; 0 where nothing is shared."""
        total = self.first + self.second
        return np.divide(2 * self.both, total, out=np.zeros_like(total), where=self.both > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The n-grams of some texts: `row` [M] is the text, `gram` [M] a number for the n-gram, below `kinds`."""

    row: Integers
    gram: Integers
    kinds: int


def number_grams(texts: Texts, max_order: int) -> Iterator[Grams]:
    """Numbers the n-grams of order 1, 2, ..., `max_order`; equal ones have equal numbers in all texts."""
    number: defaultdict[str, int] = defaultdict(count().__next__)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum()))
    row = np.repeat(np.arange(len(texts)), lengths)
    yield Grams(row, ids, len(number))
    current = ids.copy()  # the number of the n-gram that begins at each place, if one does
    for order in range(2, max_order + 1):
        last = row[order - 1 :]
        starts = np.flatnonzero(row[: len(last)] == last)  # it does not reach into the next text
        pairs = current[starts] * len(number) + ids[starts + order - 1]
        distinct, numbers = np.unique(pairs, return_inverse=True)
        current[starts] = numbers
        yield Grams(row[starts], numbers, len(distinct))


def count_shared_grams(first: Texts, second: Texts, max_order: int = 1) -> list[SharedGrams]:
    """Counts, for each order up to `max_order`, the n-grams of every pair."""
    assert len(first) == len(second), "texts come in pairs"
    size = len(first)
    shared = []
    for found in number_grams([*first, *second], max_order):
        key = found.row % max(1, size) * found.kinds + found.gram
        is_second = found.row >= size
        keys, counts = np.unique(key[~is_second], return_counts=True)
        other_keys, other_counts = np.unique(key[is_second], return_counts=True)
        common, mine, theirs = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
        clipped = np.minimum(counts[mine], other_counts[theirs])
        totals = np.bincount(found.row, minlength=2 * size).astype(np.float64)
        both = np.bincount(common // max(1, found.kinds), weights=clipped, minlength=size).astype(np.float64)
        shared.append(SharedGrams(first=totals[:size], second=totals[size:], both=both))
    return shared


def knowledge_f1(responses: Sequence[str], knowledge: Sequence[str]) -> Values:
    """Computes the F1 of the content words of each response and its knowledge [N].

    A text without such words shares nothing: 0.
    """
    response_words, knowledge_words = (
        [apostrophe_content_words(text) for text in side] for side in (responses, knowledge)
    )
    [shared] = count_shared_grams(response_words, knowledge_words)
    return shared.f1


def rouge(responses: Sequence[str], references: Sequence[str]) -> dict[str, Values]:
    """Computes the F-measures `rouge_1`, `rouge_2` and `rouge_l` of each pair [N]; 0 where a text has no token."""
    response_words = [ascii_words(text) for text in responses]
    gold_words = [ascii_words(text) for text in references]
    one, two = count_shared_grams(response_words, gold_words, 2)
    common = np.array([lcs_length(a, b) for a, b in zip(response_words, gold_words, strict=True)], np.float64)
    both = one.first + one.second
    longest = np.divide(2 * common, both, out=np.zeros_like(both), where=common > 0)
    return {"rouge_1": one.f1, "rouge_2": two.f1, "rouge_l": longest}


def distinct_n(groups: Groups, responses: Sequence[str]) -> Statistic:
    """Makes a statistic of `distinct_1` and `distinct_2`.

    A group that is drawn twice brings no new n-grams, so a resample of whole groups would always have fewer than the
    data. Resamples are therefore scored to first order: a group's weight changes the number of different n-grams by
    those that no other group has (the jackknife's influence; Efron & Tibshirani 1993, ch. 11).
    """
    orders = []
    for found in number_grams(list(map(apostrophe_words, responses)), 2):
        group, kinds = groups.index[found.row], max(1, found.kinds)
        holder, held = np.divmod(np.unique(group * kinds + found.gram), kinds)
        alone = np.bincount(held, minlength=kinds)[held] == 1
        # The n-grams of each group [G]: those that no other group has, and all.
        unique, totals = (np.bincount(one, minlength=groups.count).astype(float) for one in (holder[alone], group))
        orders.append((found.kinds, unique, totals))

    def statistic(weights: Values) -> dict[str, Values]:
        values = {}
        for order, (kinds, unique, totals) in enumerate(orders, start=1):
            different = kinds + (weights - 1) @ unique
            values[f"distinct_{order}"] = safe_ratio(different, weights @ totals)
        return values

    return statistic


def extractive_fragments(responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
    """Computes `density` and `coverage` of each pair [N].

    Tokens are words in lower case and punctuation marks. An empty response has 0 of both.
    """
    pairs = [
        measure_copying(words_and_marks(response), words_and_marks(text))
        for response, text in zip(responses, knowledge, strict=True)
    ]
    coverage, density = np.array(pairs, np.float64).reshape(-1, 2).T
    return {"density": density, "coverage": coverage}


def measure_copying(response: Sequence[str], knowledge: Sequence[str]) -> tuple[float, float]:
    """Computes coverage and density of the tokens of a response."""
    runs, size = greedy_runs(response, knowledge), max(1, len(response))
    return sum(runs) / size, sum(length * length for length in runs) / size
