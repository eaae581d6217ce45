"""BLEU: n-grams of the response that the gold response has too (Papineni et al. 2002, section 2.3).

BLEU = min(1, exp(1 - r / c)) * exp(mean over n = 1..4 of log p_n), with lengths c and r and clipped precisions p_n.
Use the corpus value to compare with published systems; a sentence's value is noisy, and neither says whether a response
is true to its knowledge.

The tokenizer is sacrebleu's, and values equal sacrebleu's (a test compares them), with smoothing and effective order.
The counts of every pair are kept: a resample of the corpus is scored from their weighted sums, and counting takes a
quarter of sacrebleu's time.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.metrics.responses.ngrams import count_shared_grams
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Statistic, Values

MAX_ORDER = 4
CHUNK = 4096  # texts that the tokenizer takes at once
_PRIVATE = range(0xE000, 0xF8FF)  # characters without an assigned meaning


def bleu_counts(responses: Sequence[str], references: Sequence[str]) -> Values:
    """Counts what BLEU needs [N, 10]: both lengths, then by order the n-grams matched and those of the response."""
    shared = count_shared_grams(tokenize(responses), tokenize(references), MAX_ORDER)
    lengths = [shared[0].first, shared[0].second]
    return np.stack([*lengths, *(s.both for s in shared), *(s.first for s in shared)], axis=1)


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """Splits texts by sacrebleu's `13a` (mteval-v13a), many texts in a call: its rules do not reach across a space."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenizer = Tokenizer13a()
    tokens: list[list[str]] = []
    for begin in range(0, len(texts), CHUNK):
        chunk = [text.rstrip() for text in texts[begin : begin + CHUNK]]
        used = set().union(*chunk)
        mark = next(chr(code) for code in _PRIVATE if chr(code) not in used)
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
