"""Reads a critic's evidence of tokenised pairs: its encoder's log-odds, and what words and tokens tell beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.sequence.read_windows import window_logits
from critic.token_support import LAST_BUT_ONE, TokenSupport
from data_modules.encoding.pairs import EVIDENCE, RUNS, PairEncoder
from faithkit.calibration.score_calibration import log_odds

Floats = NDArray[np.float64]


def read_evidence(
    model: Any,
    encoder: PairEncoder,
    columns: Mapping[str, Any],
    *,
    batch_tokens: int,
    hallucinated: Sequence[bool],
    own: bool = True,
) -> Floats:
    """Puts all that the encoder's critic weighs side by side [rows, features]: its log-odds, words, runs and tokens.

    Args:
        columns: Of the encoder, whose settings say which evidence there is.
        own: Reads the pairs for their log-odds; false leaves them at 0, for a critic that gives them no weight.
    """
    found = [np.zeros(len(columns["response"]))]
    if own:
        found = [best_odds(model, encoder, columns, batch_tokens=batch_tokens, hallucinated=hallucinated)]
    if encoder.evidence:
        found += [np.asarray(columns[name], np.float64) for name in EVIDENCE]
    if encoder.whole:
        support = TokenSupport.of(model, encoder.tokenizer, batch_tokens=batch_tokens, layer=LAST_BUT_ONE)
        found += [np.asarray(columns[RUNS], np.float64), support.weakest(columns)]
    return np.stack(found, axis=1)


def best_odds(
    model: Any, encoder: PairEncoder, columns: Mapping[str, Any], *, batch_tokens: int, hallucinated: Sequence[bool]
) -> Floats:
    """Computes log-odds of hallucinated of each pair [rows]: of the window that supports the response best."""
    logits, owner = window_logits(model, encoder, columns, batch_tokens)
    best = np.full(len(columns["response"]), np.inf)
    np.minimum.at(best, owner, log_odds(logits, hallucinated))
    return best
