"""What any detector must beat: always the commoner class, and counting the words that the knowledge does not hold."""

import re
from collections.abc import Iterable, Sequence
from math import inf, nextafter
from statistics import median

from common.errors import UserError
from common.records import FAITHFUL, HALLUCINATED, Example, Prediction
from evaluation.calibration import choose_threshold

_WORD = re.compile(r"\w+")


def majority_predictions(examples: Sequence[Example], train: Iterable[Example] = ()) -> dict[str, Prediction]:
    """The commoner label of the training examples for every example, with its share as the score.

    Without training examples the evaluated ones' own labels decide: the best that a constant answer can do.
    """
    labels = [example.label for example in train if example.label] or [e.label for e in examples if e.label]
    if not labels:
        raise UserError("no example has a gold label", mend="choose a split or a benchmark that is labelled")
    share = labels.count(HALLUCINATED) / len(labels)
    label = HALLUCINATED if share > 0.5 else FAITHFUL
    return {example.id: Prediction(id=example.id, label=label, score=share) for example in examples}


def unsupported_share(knowledge: str, response: str) -> float:
    """The share of the response's words that the knowledge does not hold, case aside; 0 where there are no words."""
    known = set(_WORD.findall(knowledge.lower()))
    words = _WORD.findall(response.lower())
    return sum(word not in known for word in words) / len(words) if words else 0.0


def overlap_predictions(
    examples: Sequence[Example], train: Iterable[Example] = (), *, aim: str = "macro_f1"
) -> dict[str, Prediction]:
    """Hallucinated where too many of the response's words are not in the knowledge; that share is the score.

    The threshold is chosen for `aim` on the labelled training examples. Without them it lies above the median share of
    the evaluated examples, which uses no label: at most half of them are then called hallucinated.
    """
    shares = {example.id: unsupported_share(example.knowledge, example.response) for example in examples}
    known = [example for example in train if example.label]
    if known:
        scores = [unsupported_share(example.knowledge, example.response) for example in known]
        threshold = choose_threshold(scores, [example.label == HALLUCINATED for example in known], aim).value
    else:
        threshold = nextafter(median(shares.values()), inf) if shares else 0.5
    return {
        id_: Prediction(id=id_, label=HALLUCINATED if share >= threshold else FAITHFUL, score=share)
        for id_, share in shares.items()
    }
