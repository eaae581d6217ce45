"""The features of a response that control tokens name, after Rashkin et al. 2021 ("Increasing Faithfulness in
Knowledge-Grounded Dialogue with Controllable Features").

Each is a number, higher where the response is likelier to be faithful. Its level counts the tokens of its group from
the unwanted one (0) to the wanted one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.turn_layout import CONTROL_TOKENS
from faithkit.words import apostrophe_words, word_set

# The names of the groups.
VOICE, OVERLAP, RELEASE_OVERLAP, ENTAILMENT, RELEASE_ENTAILMENT = CONTROL_TOKENS
OVERLAPS, ENTAILMENTS = (OVERLAP, RELEASE_OVERLAP), (ENTAILMENT, RELEASE_ENTAILMENT)
FIRST_PERSON = word_set("i me my myself mine")

Terciles = tuple[float, float]


def objective_voice(response: str) -> bool:
    """Tells whether a response has no word of the first person singular; "I'm" and "I'd" are such words."""
    return FIRST_PERSON.isdisjoint(part for word in apostrophe_words(response) for part in word.split("'"))


def lexical_overlap(knowledge: str, response: str) -> float:
    """Computes the share of the response's words, repetitions counted, that stand in the knowledge; 0 without words."""
    said, known = apostrophe_words(response), set(apostrophe_words(knowledge))
    return sum(word in known for word in said) / len(said) if said else 0.0


def fit_terciles(values: NDArray[np.float64]) -> Terciles:
    """Finds the two boundaries that cut values into three parts of about equal size.

    A value that equals a boundary belongs above it, so equal values share a part and the upper part is never empty.
    """
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    return float(low), float(high)


def overlap_of(groups: Iterable[str]) -> str | None:
    """Finds the group of lexical overlap among groups."""
    return next((group for group in groups if group in OVERLAPS), None)


def levels(values: Mapping[str, Any], terciles: Terciles | None) -> NDArray[np.int64]:
    """Turns measured features into levels: the number of each row's token in its group [rows, groups].

    Args:
        values: The measured features by group [rows], in the groups' order.
        terciles: Boundaries of the lexical overlap, where that is among the groups.
    """
    columns = []
    for group, column in values.items():
        column = np.asarray(column)
        if group in OVERLAPS:
            assert terciles is not None, "terciles are fitted on the training split"
            column = np.searchsorted(terciles, column, side="right" if group == OVERLAP else "left")
        columns.append(column.astype(np.int64))
    return np.stack(columns, axis=1)


def tokens_of(groups: Sequence[str], found: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Gives the control tokens of levels [rows, groups]."""
    return [tuple(CONTROL_TOKENS[group][level] for group, level in zip(groups, row, strict=True)) for row in found]
