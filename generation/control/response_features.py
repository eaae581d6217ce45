"""The features of a response that control tokens name, after Rashkin et al. 2021 ("Increasing Faithfulness in
Knowledge-Grounded Dialogue with Controllable Features").

Each is a number, higher where the response is likelier to be faithful. Its level counts the tokens of its group from
the unwanted one (0) to the wanted one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from faithkit.errors import UserError
from faithkit.words import apostrophe_words, word_set

# The names of the groups.
VOICE, OVERLAP, RELEASE_OVERLAP, ENTAILMENT, RELEASE_ENTAILMENT = CONTROL_TOKENS
OVERLAPS, ENTAILMENTS = (OVERLAP, RELEASE_OVERLAP), (ENTAILMENT, RELEASE_ENTAILMENT)
FIRST_PERSON = word_set("i me my myself mine")

Terciles = tuple[float, float]


def objective_voice(response: str) -> bool:
    """Returns whether a response has no word of the first person singular, including "I'm" and "I'd"."""
    return FIRST_PERSON.isdisjoint(part for word in apostrophe_words(response) for part in word.split("'"))


def lexical_overlap(knowledge: str, response: str) -> float:
    """Computes the share of the response's words that the knowledge contains, with repetitions; 0 without words."""
    words, knowledge_words = apostrophe_words(response), set(apostrophe_words(knowledge))
    return sum(word in knowledge_words for word in words) / len(words) if words else 0.0


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


def release_overlap(knowledge: str, response: str) -> float:
    """Computes the share of the response's tokens that the knowledge contains, with repetitions; 0 without tokens."""
    tokenizer = _tokenizer()
    tokens = [token.text for token in tokenizer(response)]
    knowledge_tokens = {token.text for token in tokenizer(knowledge)}
    return sum(token in knowledge_tokens for token in tokens) / len(tokens) if tokens else 0.0


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
