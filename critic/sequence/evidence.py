"""Evidence beside a critic's own log-odds: what words and tokens tell of a pair, weighed together.

    log-odds = w0 * the encoder's log-odds + sum over k of w_k * evidence k + bias

`model.evidence=words` weighs eight numbers of words by a regression. With `words_and_tokens` that regression has one
vote of three; unknown runs of four characters and the response's weakest tokens (`critic.token_support`) have the
others. Each vote is divided by its spread within a dataset, so that they count alike. What they are worth beside each
other is not fitted: it differs from domain to domain, and weights that are right for some order others worse.

With `model.evidence_alone=true` w0 is 0: the pairs need not be read, and nothing is trained.

An encoder trained on a few domains orders another one's pairs little better than unknown words do, and the two err on
different pairs: together they order them better than either (EXPERIMENTS.md, Over domains). The weights are fitted as a
tagger's are (`critic.logistic`), each class of each dataset counting the same: else the largest dataset, or one that is
nearly all hallucinated, would decide what words are worth. Each dataset has a bias of its own in the fit, whose mean is
kept: one bias for all costs 2 points of AUROC on domains that were left out.

| Relative                          | Use it for                                                               |
|-----------------------------------|--------------------------------------------------------------------------|
| `critic.tagger.evidence`          | the same for tokens and sentences                                        |
| `faithkit.baselines.word_evidence` | the words alone, without a model |
| `critic.token_support`            | the weakest tokens, by an encoder that stays as it came                  |
| `critic.losses.overlap_supervision`      | an encoder that learns in training to see which words the knowledge lacks |

>>> import numpy as np
>>> from critic.sequence.evidence import row_weights
>>> row_weights(np.array([1, 0, 0, 1]), ["begin", "begin", "begin", "snli"]).tolist()  # 4 rows, 3 classes of datasets
[1.3333333333333333, 0.6666666666666666, 0.6666666666666666, 1.3333333333333333]
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.logistic import Floats, fit_line
from data_modules.encoding.pairs import EVIDENCE as COLUMNS
from data_modules.encoding.pairs import RUNS

EVIDENCE = "evidence_weights"  # the sidecar's key, beside the calibration
WEIGHTS = ("own log-odds", *COLUMNS, "bias")
WEAKEST = "evidence: weakest tokens"
TOKEN_WEIGHTS = (*WEIGHTS[:-1], RUNS, WEAKEST, "bias")
LEAST_SPREAD = 1e-9
FITTED = len(WEIGHTS) - 1  # columns that the regression weighs; those behind them vote
NAMES = {len(names): names for names in (WEIGHTS, TOKEN_WEIGHTS)}  # a sidecar's numbers are told apart by how many


def fit_evidence(
    evidence: Floats, gold: NDArray[Any], sources: Sequence[str], *, own: bool = True
) -> tuple[tuple[float, ...], str]:
    """Fits the weights of `critic.sequence.read_evidence` on labelled rows; also says why nothing was fitted, if so.

    Args:
        sources: The dataset of each row.
        own: Weighs the log-odds, which are the first column; false gives them 0.
    """
    names, place = np.unique(np.array(sources), return_inverse=True)
    shifts, counts = np.eye(len(names))[place] if len(names) > 1 else None, row_weights(gold, sources)
    words, bias, note = fit_line(evidence[:, 0 if own else 1 : FITTED], gold, counts, shifts, leads=own)
    weights = np.array(words if own else (0.0, *words))
    if evidence.shape[1] == FITTED:
        return (*weights.tolist(), bias), note
    votes = np.column_stack([evidence[:, :FITTED] @ weights, evidence[:, FITTED], -evidence[:, FITTED + 1]])
    scale = 1 / _spread(votes, counts, place)
    (slope,), bias, told = fit_line((votes @ scale)[:, None], gold, counts, shifts)
    regression, runs, tokens = slope * scale
    return (*(regression * weights).tolist(), float(runs), -float(tokens), bias), note or told


def _spread(values: Floats, counts: Floats, place: NDArray[np.intp]) -> Floats:
    """Computes the standard deviation of columns within datasets; infinite where nothing differs [columns]."""
    rest = np.empty_like(values)
    for number in range(place.max(initial=-1) + 1):
        own = place == number
        rest[own] = values[own] - np.average(values[own], axis=0, weights=counts[own])
    spread = np.sqrt(np.average(rest**2, axis=0, weights=counts))
    return np.where(spread > LEAST_SPREAD, spread, np.inf)


def row_weights(gold: NDArray[Any], sources: Sequence[str]) -> Floats:
    """Weighs rows so that each class of each dataset counts the same; they are 1 on average [rows]."""
    _, place = np.unique(
        [f"{source}\0{label}" for source, label in zip(sources, gold, strict=True)], return_inverse=True
    )
    size = np.bincount(place)
    return len(gold) / len(size) / size[place]
