"""FaithDial's released way of measuring the features of CTRL, to compare with: its overlap and its terciles.

It counts spaCy's tokens as they are written, punctuation too, so "The" is not "the" and every full stop may overlap;
ours counts words in lower case. A value at a boundary belongs below it there, and above it with ours.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError


def release_overlap(knowledge: str, response: str) -> float:
    """Computes the share of the response's tokens, repetitions counted, that stand in the knowledge; 0 without any."""
    tokenizer = _tokenizer()
    said, known = [token.text for token in tokenizer(response)], {token.text for token in tokenizer(knowledge)}
    return sum(token in known for token in said) / len(said) if said else 0.0


def fit_release_terciles(values: NDArray[np.float64]) -> tuple[float, float]:
    """Finds the highest values of the lowest and of the middle third of the rows."""
    low, middle, _ = np.array_split(np.sort(values), 3)
    highest = float(low[-1])
    return highest, float(middle[-1]) if len(middle) else highest


@cache
def _tokenizer() -> Any:
    """Makes spaCy's English tokenizer, which needs no trained pipeline."""
    try:
        import spacy
    except ImportError as error:
        hint = "pip install '.[spacy]', or use control=ctrl"
        raise UserError("the released overlap counts spaCy's tokens, and spaCy is not installed", hint=hint) from error
    return spacy.blank("en").tokenizer
