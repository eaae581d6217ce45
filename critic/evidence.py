"""Evidence beside a critic's own log-odds: what words tell of a pair, weighed together on validation.

    log-odds = w0 * the encoder's log-odds + sum over k of w_k * word evidence k + bias

An encoder trained on a few domains orders another one's pairs little better than unknown words do, and the two err on
different pairs: together they order them better than either (EXPERIMENTS.md, Over domains). The weights are fitted as a
tagger's are (`critic.logistic`), each class of each dataset counting the same: else the largest dataset, or one that is
nearly all hallucinated, would decide what words are worth.

| Relative                          | Use it for                                                               |
|-----------------------------------|--------------------------------------------------------------------------|
| `critic.tagger.evidence`          | the same for tokens and sentences                                        |
| `faithkit.word_evidence`          | the words alone, without a model                                         |
| `critic.overlap_supervision`      | an encoder that learns in training to see which words the knowledge lacks |

>>> import numpy as np
>>> from critic.evidence import row_weights
>>> row_weights(np.array([1, 0, 0, 1]), ["begin", "begin", "begin", "snli"]).tolist()  # 4 rows, 3 classes of datasets
[1.3333333333333333, 0.6666666666666666, 0.6666666666666666, 1.3333333333333333]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.logistic import Floats, fit_line
from data_modules.encoding.pairs import EVIDENCE as COLUMNS

EVIDENCE = "evidence_weights"  # the sidecar's key, beside the calibration
WEIGHTS = ("own log-odds", *COLUMNS, "bias")


def stack_evidence(odds: Floats, columns: Mapping[str, Any]) -> Floats:
    """Puts the encoder's log-odds and the words' evidence side by side [rows, 9].

    Args:
        columns: Of a `PairEncoder` with evidence.
    """
    return np.stack([odds, *(np.asarray(columns[name], np.float64) for name in COLUMNS)], axis=1)


def fit_evidence(evidence: Floats, gold: NDArray[Any], sources: Sequence[str]) -> tuple[tuple[float, ...], str]:
    """Fits WEIGHTS on labelled rows; also says why nothing was fitted, if so.

    Args:
        sources: The dataset of each row.
    """
    weights, bias, note = fit_line(evidence, gold, row_weights(gold, sources))
    return (*weights, bias), note


def row_weights(gold: NDArray[Any], sources: Sequence[str]) -> Floats:
    """Weighs rows so that each class of each dataset counts the same; they are 1 on average [rows]."""
    _, place = np.unique(
        [f"{source}\0{label}" for source, label in zip(sources, gold, strict=True)], return_inverse=True
    )
    size = np.bincount(place)
    return len(gold) / len(size) / size[place]
