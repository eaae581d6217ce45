"""Combines a critic's log-odds with word and token features of a pair.

    log-odds = w0 * the encoder's log-odds + sum over k of w_k * feature k + bias

`model.evidence=words` fits a logistic regression on eight word features. With `words_and_tokens` three scores are
summed: that regression, unknown character 4-grams, and the response's weakest tokens (`critic.token_support`). Each is
divided by its standard deviation within a dataset, so that they have equal influence. Their relative weights are not
fitted, because they differ between domains: weights that fit some domains rank others worse.

With `model.evidence_alone=true` w0 is 0: the model is not run on pairs, and nothing is trained.

An encoder trained on a few domains ranks the pairs of another domain little better than unknown words do, and the two
make different errors: their combination ranks better than either (research/experiments/taggers.md). The weights
are fitted as a tagger's (`critic.logistic`), and each class of each dataset has the same total weight; otherwise the
largest dataset would dominate. Each dataset has a separate bias in the fit, and the mean bias is kept: a single bias
costs 2 points of AUROC on held-out domains.

| Relative                          | Use it for                                                               |
|-----------------------------------|--------------------------------------------------------------------------|
| `critic.tagger.span_calibration`              | the same for tokens and sentences |
| `faithkit.baselines.word_features` | the words alone, without a model |
| `critic.token_support`            | the weakest tokens, by an encoder that is not fine-tuned |
| `critic.auxiliary_losses`      | an encoder that learns which words the knowledge lacks |

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
from data_modules.encoding.pair_encoder import EVIDENCE as COLUMNS
from data_modules.encoding.pair_encoder import RUNS

WEIGHTS = ("own log-odds", *COLUMNS, "bias")
TOKEN_WEIGHTS = (*WEIGHTS[:-1], RUNS, "evidence: weakest tokens", "bias")
MIN_SPREAD = 1e-9
FITTED = len(WEIGHTS) - 1  # columns of the regression; the remaining columns are separate scores
WEIGHT_NAMES = {len(names): names for names in (WEIGHTS, TOKEN_WEIGHTS)}  # a list is identified by its length


def fit_evidence(
    evidence: Floats, gold: NDArray[Any], sources: Sequence[str], *, with_odds: bool = True
) -> tuple[tuple[float, ...], str]:
    """Fits the weights of the features on labelled rows, and returns a note if nothing could be fitted.

    Args:
        sources: The dataset of each row.
        with_odds: Fits a weight for the log-odds, the first column; false sets it to 0.
    """
    names, dataset = np.unique(np.array(sources), return_inverse=True)
    indicators = np.eye(len(names))[dataset] if len(names) > 1 else None
    counts = row_weights(gold, sources)
    first = 0 if with_odds else 1
    fitted, bias, note = fit_line(evidence[:, first:FITTED], gold, counts, indicators, leads=with_odds)
    weights = np.array(fitted if with_odds else (0.0, *fitted))
    if evidence.shape[1] == FITTED:
        return (*weights.tolist(), bias), note
    scores = np.column_stack([evidence[:, :FITTED] @ weights, evidence[:, FITTED], -evidence[:, FITTED + 1]])
    residuals = np.empty_like(scores)  # within datasets
    for number in range(dataset.max(initial=-1) + 1):
        rows = dataset == number
        residuals[rows] = scores[rows] - np.average(scores[rows], axis=0, weights=counts[rows])
    spread = np.sqrt(np.average(residuals**2, axis=0, weights=counts))
    scale = 1 / np.where(spread > MIN_SPREAD, spread, np.inf)  # a constant column gets no weight
    (slope,), bias, sum_note = fit_line((scores @ scale)[:, None], gold, counts, indicators)
    regression, runs, tokens = slope * scale
    return (*(regression * weights).tolist(), float(runs), -float(tokens), bias), note or sum_note


def row_weights(gold: NDArray[Any], sources: Sequence[str]) -> Floats:
    """Computes weights that give each class of each dataset the same total; their mean is 1 [rows]."""
    _, group = np.unique(
        [f"{source}\0{label}" for source, label in zip(sources, gold, strict=True)], return_inverse=True
    )
    size = np.bincount(group)
    return len(gold) / len(size) / size[group]
