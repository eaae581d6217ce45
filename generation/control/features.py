"""The features of a response that control tokens name, after Rashkin et al. 2021 ("Increasing Faithfulness in
Knowledge-Grounded Dialogue with Controllable Features").

Each is a number that is higher the more faithful it promises to be; a level counts from the unwanted token of its group
to the wanted one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.turn_layout import CONTROL_TOKENS
from faithkit.words import apostrophe_words, word_set

VOICE, OVERLAP, ENTAILMENT = CONTROL_TOKENS  # the names of the groups
FIRST_PERSON = word_set("i me my myself mine")

Terciles = tuple[float, float]


def objective_voice(response: str) -> bool:
    """Whether the speaker stays out of it: no word of the first person singular, "I'm" and "I'd" counted."""
    return FIRST_PERSON.isdisjoint(part for word in apostrophe_words(response) for part in word.split("'"))


def lexical_overlap(knowledge: str, response: str) -> float:
    """Share of the response's words, each as often as it is said, that stand in the knowledge; 0 without words."""
    said, known = apostrophe_words(response), set(apostrophe_words(knowledge))
    return sum(word in known for word in said) / len(said) if said else 0.0


def fit_terciles(values: NDArray[np.float64]) -> Terciles:
    """The two boundaries between three parts of equal size, as far as equal values allow.

    What equals a boundary belongs above it: equal values are never parted, and the upper part is never empty.
    """
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    return float(low), float(high)


def levels(values: Mapping[str, Any], terciles: Terciles | None) -> NDArray[np.int64]:
    """Which token of its group each row has [rows, groups].

    Args:
        values: The measured features by group [rows], in the groups' order.
        terciles: Of the lexical overlap, where that is among them.
    """
    columns = []
    for group, column in values.items():
        column = np.asarray(column)
        if group == OVERLAP:
            assert terciles is not None, "terciles are fitted on the training split"
            column = np.searchsorted(terciles, column, side="right")
        columns.append(column.astype(np.int64))
    return np.stack(columns, axis=1)


def tokens_of(groups: Sequence[str], found: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """The texts of the tokens that levels stand for."""
    return [tuple(CONTROL_TOKENS[group][level] for group, level in zip(groups, row, strict=True)) for row in found]
