"""Splits RAGTruth into folds by source; the baseline detector by word overlap, which only fits a threshold."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data_modules.encoding.cache import group_hash
from data_modules.splits import fold_of
from faithkit.baselines.word_overlap import unsupported_share
from faithkit.metrics.span_metrics import span_metrics
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, Span
from faithkit.span_types import UNTYPED

Predictions = dict[str, Prediction]  # by example


@dataclass(frozen=True)
class Fold:
    """One fold: the answers to a part of the sources for testing, all others for training."""

    number: int
    train: list[Example]
    test: list[Example]


def read_answers(data: str) -> list[Example]:
    """Reads all answers of good quality, of all official splits."""
    from data_modules.datasets.ragtruth import RagTruth
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    return list(read_examples(RagTruth(path=data, official_split=False), "all", ReadReport()))


def make_folds(examples: Sequence[Example], num_folds: int) -> list[Fold]:
    """Makes folds by source, the same as train.py's data.fold and data.num_folds do."""
    hashes = np.array([group_hash(example.group) for example in examples], np.uint64)
    number = fold_of(hashes, num_folds)
    folds = []
    for i in range(num_folds):
        train, test = (
            [examples[row] for row in np.flatnonzero((number == i) == held).tolist()] for held in (False, True)
        )
        folds.append(Fold(i, train, test))
    return folds


def pool_predictions(folds: Sequence[Fold], predict: Callable[[Fold], Predictions]) -> Predictions:
    """Joins the predictions of all folds for their test parts."""
    return {id_: prediction for fold in folds for id_, prediction in predict(fold).items()}


def overlap_baseline(fold: Fold) -> Predictions:
    """Marks sentences with too many words that the context lacks; the threshold is fitted on the training part."""
    shares = {e.id: sentence_shares(e) for e in fold.train + fold.test}

    def predict(threshold: float, examples: Sequence[Example]) -> Predictions:
        return {
            e.id: make_prediction(e, [place for place, share in shares[e.id] if share >= threshold]) for e in examples
        }

    def quality(threshold: float) -> float:
        metrics = span_metrics(fold.train, predict(threshold, fold.train), num_resamples=2).metrics
        return metrics["char_f1"].value + metrics["response_f1"].value

    return predict(float(max(np.arange(0.05, 1.0, 0.05), key=quality)), fold.test)


def sentence_shares(example: Example) -> list[tuple[tuple[int, int], float]]:
    """Finds each sentence's place in the response, and the share of its words that the context lacks."""
    question = " ".join(turn.text for turn in example.history)
    places = [match.span() for match in re.finditer(r"\S[^.!?\n]*[.!?]*", example.response)]
    known = f"{question} {example.knowledge}"
    return [(place, unsupported_share(known, example.response[slice(*place)])) for place in places]


def make_prediction(example: Example, places: Sequence[tuple[int, int]]) -> Prediction:
    """Makes a prediction with spans at these places."""
    spans = tuple(Span(start=start, end=end, label=UNTYPED) for start, end in places)
    return Prediction(id=example.id, label=HALLUCINATED if spans else FAITHFUL, spans=spans)
