"""Folds of RAGTruth by source, and the detectors that need no training but a threshold."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data_modules.encoding.cache import group_hash
from data_modules.splits import fold_of
from faithkit.evaluation.baselines import unsupported_share
from faithkit.evaluation.span_metrics import span_metrics
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, Span
from faithkit.span_types import UNTYPED

Said = dict[str, Prediction]


@dataclass(frozen=True)
class Fold:
    """One part of the sources for testing, the others for training."""

    number: int
    train: list[Example]
    test: list[Example]


def read(data: str) -> list[Example]:
    """All answers of good quality, whatever their official split."""
    from data_modules.datasets.ragtruth import RagTruth
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    return list(read_examples(RagTruth(path=data, official_split=False), "all", ReadReport()))


def divide(examples: Sequence[Example], num_folds: int) -> list[Fold]:
    """Folds by source, the same that train.py's data.fold and data.num_folds make."""
    hashes = np.array([group_hash(example.group) for example in examples], np.uint64)
    number = fold_of(hashes, num_folds)
    folds = []
    for i in range(num_folds):
        train, test = (
            [examples[row] for row in np.flatnonzero((number == i) == held).tolist()] for held in (False, True)
        )
        folds.append(Fold(i, train, test))
    return folds


def pooled(folds: Sequence[Fold], predict: Callable[[Fold], Said]) -> Said:
    """The predictions of all folds for their test parts."""
    return {id_: prediction for fold in folds for id_, prediction in predict(fold).items()}


def overlap(fold: Fold) -> Said:
    """The sentences marked in which too many words are not in the context: the training part says how many."""
    shares = {e.id: sentence_shares(e) for e in fold.train + fold.test}

    def at(threshold: float, examples: Sequence[Example]) -> Said:
        return {e.id: marked(e, [place for place, share in shares[e.id] if share >= threshold]) for e in examples}

    def quality(threshold: float) -> float:
        metrics = span_metrics(fold.train, at(threshold, fold.train), num_resamples=2).metrics
        return metrics["char_f1"].value + metrics["response_f1"].value

    return at(float(max(np.arange(0.05, 1.0, 0.05), key=quality)), fold.test)


def sentence_shares(example: Example) -> list[tuple[tuple[int, int], float]]:
    """Where each sentence of the response lies, and the share of its words that the context does not hold."""
    question = " ".join(turn.text for turn in example.history)
    places = [match.span() for match in re.finditer(r"\S[^.!?\n]*[.!?]*", example.response)]
    known = f"{question} {example.knowledge}"
    return [(place, unsupported_share(known, example.response[slice(*place)])) for place in places]


def marked(example: Example, places: Sequence[tuple[int, int]]) -> Prediction:
    """A prediction with these stretches as its spans."""
    spans = tuple(Span(start=start, end=end, label=UNTYPED) for start, end in places)
    return Prediction(id=example.id, label=HALLUCINATED if spans else FAITHFUL, spans=spans)
