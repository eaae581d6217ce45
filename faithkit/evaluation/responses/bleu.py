"""BLEU of responses with the gold response, for the corpus and for each example (Papineni et al. 2002).

Values equal sacrebleu's: its own tokenizer, its smoothing, and for single sentences its effective order. The counts of
every pair are kept, so that a resample of the corpus is scored from their weighted sums.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.evaluation.intervals import Groups, Statistic, Values
from faithkit.evaluation.responses.ngrams import shared_grams

MAX_ORDER = 4
CHUNK = 4096  # texts that the tokenizer takes at once
_PRIVATE = range(0xE000, 0xF8FF)  # characters without a meaning of their own


def bleu_counts(responses: Sequence[str], references: Sequence[str]) -> Values:
    """What BLEU is made of [N, 10]: both lengths, then for each order the n-grams matched and those of the response."""
    shared = shared_grams(tokenize(responses), tokenize(references), MAX_ORDER)
    lengths = [shared[0].first, shared[0].second]
    return np.stack([*lengths, *(s.both for s in shared), *(s.first for s in shared)], axis=1)


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """Tokens by sacrebleu's `13a` (mteval-v13a), many texts in a call: its rules do not reach across a space."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenizer = Tokenizer13a()
    tokens: list[list[str]] = []
    for begin in range(0, len(texts), CHUNK):
        chunk = [text.rstrip() for text in texts[begin : begin + CHUNK]]
        used = set().union(*chunk)
        mark = next(chr(code) for code in _PRIVATE if chr(code) not in used)
        tokens += [part.split() for part in tokenizer(f" {mark} ".join(chunk)).split(mark)]
    return tokens


def bleu(counts: Values, *, effective_order: bool = False) -> Values:
    """Scores [R] from 0 to 100 of counts [R, 10], with sacrebleu's default smoothing (`exp`).

    Args:
        effective_order: Of a response too short for the higher orders only the lower ones count, as single sentences
            need it.
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
    defined = hit.any(axis=1) & (effective_order | has.all(axis=1))
    return np.where(defined, score, 0.0)


def corpus_bleu(groups: Groups, counts: Values) -> Statistic:
    """`bleu` of the corpus as a function of weights over groups."""
    sums = groups.sums(counts)
    return lambda weights: {"bleu": bleu(weights @ sums)}
