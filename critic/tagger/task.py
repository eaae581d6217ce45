"""The tagger's training task: encoder, module, and calibration and test of the best checkpoint."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.options import TaggerOptions
from critic.runtime import request_of
from critic.tagger.module import TaggerModule
from critic.tagger.predictor import RESPONSES_AT_ONCE, Tagger
from critic.tagger.span_calibration import Answers, Settings, SpanCalibration, tagger_labels
from critic.weights import find_head, rescale_head
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.encoder import Subset
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer, tags_of
from faithkit.calibration import calibration_error, choose_threshold, fit_line, sigmoid
from faithkit.fast import is_enabled
from faithkit.records import HALLUCINATED, SPAN_TYPES, Example, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.task import Calibrated, FinishedTraining, TestResults, report_detector
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit.weights.load import read_config
from faithkit.weights.resolve import loading

log = logging.getLogger("faithkit")

FIT_ROWS = 1500  # of each dataset, if nothing but the calibration is fitted
MERGE_GAPS = (0, 4, 12, 30)
MIN_LENGTHS = (1, 4, 10, 20)
Floats = NDArray[np.float64]


class TaggerTask:
    """Trains a tagger: `model=tagger`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `TaggerOptions` are read.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any]):
        from transformers import AutoModelForTokenClassification

        self.model_class: Any = AutoModelForTokenClassification
        self.options = read_options(TaggerOptions, model)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.encoder = SpanEncoder(
            tokenizer=self.tokenizer,
            max_length=self.options.max_length,
            packed=self.options.packed and is_enabled() and not self.options.token_support,
            max_windows=self.options.train_windows,
        )
        self.reader = replace(self.encoder, max_windows=self.options.max_windows)

    def module(self, *, num_steps: int, dataset: str, seed: int) -> TaggerModule:
        """Builds the module to train; without types in the training spans it has a single class."""
        if self.options.typed and self.encoder.untyped:
            with loading(self.options.weights) as source:
                labels = (read_config(source).get("id2label") or {}).values()
            if not set(SPAN_TYPES) <= set(labels):
                log.info("no training span has a type: training with model.typed=false")
                self.options = replace(self.options, typed=False)
        return TaggerModule(self.options, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Tagger]:
        """Fits a calibration on the rows of validation with annotated spans.

        A calibration that is linear in the log-odds of a token becomes part of the head.
        """
        options = self.options
        tagger = Tagger(model, self.reader, SpanCalibration(), token_support=options.token_support)
        subsets = self._fitting_subsets(training)
        rows, candidates = Batches(subsets, self.encoder), [one for subset in subsets for one in subset.examples()]
        annotated = [number for number, example in enumerate(candidates) if example.spans is not None]
        examples = [candidates[number] for number in annotated]
        num_shards = training.trainer.world_size  # each process computes one
        bounds = np.linspace(0, len(examples), num_shards + 1).astype(int)

        def compute_shards(shards: NDArray[np.int64]) -> list[Answers]:
            found = []
            for begin, end in ((bounds[shard], bounds[shard + 1]) for shard in shards):
                numbers = np.array(annotated[begin:end], np.int64)
                starts = range(0, len(numbers), RESPONSES_AT_ONCE)
                columns = (rows.columns(numbers[start : start + RESPONSES_AT_ONCE]) for start in starts)
                found.append(tagger.answers([request_of(one) for one in examples[begin:end]], columns))
            return found

        tagger.calibration, fit = fit_calibration(
            Answers.join(training.divide_work(num_shards, compute_shards)),
            examples,
            options.threshold_aim,
            use_evidence=options.evidence,
            by_tokens=options.token_support,
        )
        written, head = tagger.calibration, tuple[float, ...]()
        is_linear = not (options.token_support or written.token_weights or model.config.num_labels > 2)
        if is_linear and find_head(model).bias is not None:
            head, written = (written.slope, written.bias), replace(written, slope=1.0, bias=0.0)
        settings = Settings(
            labels=tagger_labels(options.typed),
            max_length=self.encoder.max_length,
            max_windows=self.reader.max_windows,
            token_support=options.token_support,
            head=head,
            calibration=written,
            origin=training.origin_with_baselines(candidates),
        )
        return Calibrated(
            predictor=tagger,
            sidecar=settings.to_sidecar(),
            examples=examples,
            fit=fit,
            finish_model=lambda model: rescale_head(model, *head) if head else None,
        )

    def _fitting_subsets(self, training: FinishedTraining[DataModule]) -> list[Subset]:
        """Returns validation, and rows of training if nothing was trained on these, at most `FIT_ROWS` per dataset."""
        unused = training.data.subsets.get("train", ()) if self.options.token_support else ()
        return [*(subset.sample(FIT_ROWS) for subset in unused), *training.data.subsets["validation"]]

    def predict(self, training: FinishedTraining[DataModule], tagger: Tagger, subset: Subset) -> list[Prediction]:
        """Predicts each row of a test subset."""
        rows, examples = Batches([subset], self.encoder), subset.examples()

        def predict_part(part: NDArray[np.int64]) -> list[Prediction]:
            chosen, starts = [examples[number] for number in part], range(0, len(part), RESPONSES_AT_ONCE)
            columns = (rows.columns(part[start : start + RESPONSES_AT_ONCE]) for start in starts)
            tagged = tagger.tag([request_of(example) for example in chosen], columns)
            return [replace(one, id=example.id) for example, one in zip(chosen, tagged, strict=True)]

        return training.divide_work(len(examples), predict_part)

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Tagger],
        tests: TestResults[Prediction],
    ) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        parts = "training and validation" if self.options.token_support else "validation"
        fitted_on = [one for subset in self._fitting_subsets(training) for one in subset.examples()]
        return report_detector(training, tests, fitted_on=fitted_on, parts=parts)


def fit_calibration(
    answers: Answers, examples: Sequence[Example], aim: str, *, use_evidence: bool = True, by_tokens: bool = False
) -> tuple[SpanCalibration, dict[str, Any]]:
    """Fits a tagger's calibration on annotated validation answers; returns it with a report.

    1. P(token is hallucinated): a logistic regression of gold tags on token features.
    2. P(response is hallucinated): a logistic regression of gold labels on response features.
    3. The threshold on it, chosen for `aim` (`faithkit.calibration.choose_threshold`).
    4. Spans of the responses that are labelled hallucinated: the threshold, merge gap and minimum length with the best
       character F1 (`fit_spans`).

    For domains other than validation's, steps 2 and 3 are left out, because the effect of length and the base rate
    differ between domains. A response then has the probability of its most probable token, and the threshold of the
    spans.

    Args:
        use_evidence: Calibrates tokens by all features of `critic.tagger.span_calibration`, not only log-odds.
        by_tokens: Labels responses by their tokens, without steps 2 and 3; `aim` is not used then.
        aim: Metric that the response threshold maximises: f1, macro_f1 or precision>=p.
    """
    wrong = wrong_tokens(answers, examples)  # [tokens]
    gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)  # [responses]
    visible = answers.characters > 0
    slope, bias, note = fit_line(answers.odds[visible, None], wrong[visible])
    calibration = SpanCalibration(slope=slope[0], bias=bias)
    if use_evidence and not note:
        weights, bias, note = fit_line(answers.token_evidence()[visible], wrong[visible])
        calibration = replace(calibration, token_weights=() if note else (*weights, bias))
    probability = calibration.probabilities(answers)  # [tokens]
    notes = [note]
    if by_tokens:
        calibration, char_f1 = fit_spans(replace(calibration, response_weights=()), answers, probability, examples)
        aim = "char_f1: the label of a response follows from its tokens"
        calibration = replace(calibration, response_threshold=calibration.char_threshold, aim=aim)
        scores = answers.worst(probability)  # [responses]
        predicted = calibration.is_hallucinated(scores)
        response_f1 = float(2 * (predicted & (gold > 0)).sum() / max(1, predicted.sum() + gold.sum()))
    else:
        weights, bias, note = fit_line(answers.response_evidence(probability), gold)
        calibration = replace(calibration, response_weights=(*weights, bias), aim=aim)
        scores = calibration.response_scores(answers, probability)  # [responses]
        threshold = choose_threshold(scores, gold, aim)
        calibration, response_f1 = replace(calibration, response_threshold=threshold.value), threshold.f1
        calibration, char_f1 = fit_spans(
            calibration, answers, probability, examples, calibration.is_hallucinated(scores)
        )
        notes += [note, threshold.note]
    report = {
        "num_responses": len(examples),
        "num_tokens": int(visible.sum()),
        "token_ece_before": calibration_error(sigmoid(answers.odds[visible]), wrong[visible]),
        "token_ece_after": calibration_error(probability[visible], wrong[visible]),
        "response_ece": calibration_error(scores, gold),
        "char_f1": char_f1,
        "response_f1": response_f1,
        "notes": [text for text in notes if text],
    }
    return calibration, report


def wrong_tokens(answers: Answers, examples: Sequence[Example]) -> NDArray[np.int8]:
    """Computes gold tags: 1 if a gold span overlaps the token [tokens]."""
    bounds = np.searchsorted(answers.owner, np.arange(len(examples) + 1))
    rows = [
        tags_of(example.spans or (), answers.start[first:last], answers.end[first:last], len(example.response)) > 0
        for example, first, last in zip(examples, bounds[:-1], bounds[1:], strict=True)
    ]
    return np.concatenate(rows).astype(np.int8)


def fit_spans(
    calibration: SpanCalibration,
    answers: Answers,
    probability: Floats,
    examples: Sequence[Example],
    is_hallucinated: NDArray[np.bool_] | None = None,
) -> tuple[SpanCalibration, float]:
    """Chooses threshold, merge gap and minimum length by grid search for the best character F1; returns that F1.

    Ties are resolved by the smallest gap, then the smallest length, then the lowest threshold.

    Args:
        is_hallucinated: The label of each response, which spans must match; None allows spans in all responses.
    """
    begins = np.append(0, np.cumsum([len(example.response) for example in examples]))  # of each answer, concatenated
    marked = np.zeros(int(begins[-1]), np.int64)
    for first, example in zip(begins[:-1], examples, strict=True):
        for span in example.spans or ():
            marked[first + span.start : first + span.end] = 1
    before = np.append(0, np.cumsum(marked))  # annotated characters before each position
    if not before[-1]:
        return calibration, 0.0
    thresholds = np.unique(np.quantile(probability[answers.characters > 0], np.linspace(0.3, 1.0, 40)))
    best, best_f1 = calibration, -1.0
    for merge_gap, min_length, threshold in product(MERGE_GAPS, MIN_LENGTHS, thresholds):
        tried = replace(calibration, char_threshold=float(threshold), merge_gap=merge_gap, min_length=min_length)
        found = tried.spans(answers, probability, is_hallucinated)
        begin = begins[answers.owner[found.first]]  # of the answer of each span
        correct = int((before[begin + found.end] - before[begin + found.start]).sum())
        f1 = 2 * correct / (int(before[-1]) + int((found.end - found.start).sum()))
        if f1 > best_f1:
            best, best_f1 = tried, f1
    return best, best_f1
