"""The critic's training task: encoder, module, and calibration and test of the best checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.options import CriticOptions
from critic.sequence.module import CriticModule
from critic.sequence.scorer import PAIRS_AT_ONCE, Critic
from critic.sequence.settings import WEIGHT_NAMES, WEIGHTS, Settings
from critic.weights import find_head, rescale_head
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.encoder import NO_LABEL, Subset
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.calibration import Floats, ScoreCalibration, calibration_error, fit_line, linear, sigmoid
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.task import Calibrated, FinishedTraining, TestResults, report_detector
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit.weights.resolve import loading

FIT_ROWS = 1500  # of each dataset, to fit the ten weights of the evidence alone
MIN_SPREAD = 1e-9
NUM_FITTED = len(WEIGHTS) - 1  # columns of the regression of evidence; the remaining columns are separate scores


class CriticTask:
    """Trains a critic: `model=critic`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `CriticOptions` are read.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any]):
        from transformers import AutoModelForSequenceClassification

        self.model_class: Any = AutoModelForSequenceClassification
        self.options = read_options(CriticOptions, model)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.encoder = PairEncoder(
            tokenizer=self.tokenizer,
            max_length=self.options.max_length,
            order=self.options.order,
            marked=bool(self.options.span_weight),
            max_windows=self.options.max_windows,
            max_knowledge_words=self.options.max_knowledge_words,
            evidence=bool(self.options.evidence),
            whole=self.options.reads_tokens,
        )

    def module(self, *, num_steps: int, dataset: str, seed: int) -> CriticModule:
        """Builds the module to train."""
        return CriticModule(self.options, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Critic]:
        """Fits temperature, threshold and the weights of evidence on the labelled rows of validation.

        Temperature and threshold become part of the head, or of the weights of evidence.

        The weights of the evidence alone are fitted on rows of training, which nothing else was fitted on.
        """
        rows = Batches(training.data.subsets["validation"], self.encoder)
        labelled_rows = np.flatnonzero(rows.lengths("label") != NO_LABEL)
        examples = [example for example in training.validation if example.label is not None]
        gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)
        critic = Critic(model, self.encoder, ScoreCalibration())
        note, head = "", tuple[float, ...]()
        if self.options.evidence_alone:
            critic.weights, note = self._fit_evidence_alone(training, critic)
            odds = compute_rows(training, rows, labelled_rows, critic.odds)
        elif self.options.evidence:
            evidence = compute_rows(training, rows, labelled_rows, critic.features)
            critic.weights, note = fit_evidence(evidence, gold, [example.source for example in examples])
            odds = linear(evidence, critic.weights)
        else:
            odds = compute_rows(training, rows, labelled_rows, critic.odds)
        critic.calibration, fit = ScoreCalibration.fit(odds, gold, self.options.threshold_aim)
        if self.options.evidence or find_head(model).bias is not None:
            slope, bias = critic.calibration.line(odds)
            critic.calibration = ScoreCalibration(aim=critic.calibration.aim)  # with 0.5 as the threshold
            if self.options.evidence:
                *weights, constant = critic.weights
                critic.weights = (*(slope * weight for weight in weights), slope * constant + bias)
            else:  # the head gets them when it is written; until then they weigh its log-odds
                critic.weights = head = slope, bias
            fit["ece_after"] = calibration_error(sigmoid(slope * odds + bias), gold)
        if self.options.evidence:
            fit["evidence"] = {
                "weights": dict(zip(WEIGHT_NAMES[len(critic.weights)], critic.weights, strict=True)),
                "note": note,
            }
        settings = Settings(
            max_length=self.encoder.max_length,
            order=self.encoder.order,
            max_knowledge_words=self.encoder.max_knowledge_words,
            max_windows=self.encoder.max_windows,
            evidence=critic.weights if self.options.evidence else (),
            head=head,
            calibration=critic.calibration,
            origin=training.origin_with_baselines(examples),
        )
        return Calibrated(
            predictor=critic,
            sidecar=settings.to_sidecar(),
            examples=examples,
            fit=fit,
            finish_model=lambda written: rescale_head(written, *head) if head else None,
        )

    def _fit_evidence_alone(
        self, training: FinishedTraining[DataModule], critic: Critic
    ) -> tuple[tuple[float, ...], str]:
        """Fits the weights of evidence on rows of training, at most `FIT_ROWS` of each dataset."""
        subsets = training.data.subsets.get("train", ())
        if not subsets:
            problem = "model.evidence_alone=true is fitted on training rows, which data.streaming=true does not keep"
            raise UserError(problem, hint="set data.streaming=false")
        labels = [np.asarray(subset.encoded.columns["label"])[subset.indices] for subset in subsets]
        labelled = [
            replace(subset, indices=subset.indices[label != NO_LABEL])
            for subset, label in zip(subsets, labels, strict=True)
        ]
        sampled = [subset.sample(FIT_ROWS) for subset in labelled if len(subset)]
        if not sampled:
            problem = "model.evidence_alone=true needs labels, and no training row has one"
            raise UserError(problem, hint="set model.evidence_alone=false, which trains on weak labels")
        rows = Batches(sampled, self.encoder)
        examples = [example for subset in sampled for example in subset.examples()]
        gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)
        evidence = compute_rows(training, rows, np.arange(len(rows)), partial(critic.features, with_odds=False))
        return fit_evidence(evidence, gold, [example.source for example in examples], with_odds=False)

    def predict(self, training: FinishedTraining[DataModule], critic: Critic, subset: Subset) -> list[Prediction]:
        """Predicts each row of a test subset."""
        rows = Batches([subset], self.encoder)
        odds = compute_rows(training, rows, np.arange(len(rows)), critic.odds)
        scores = critic.calibration.scores(odds)
        return critic.calibration.predictions([example.id for example in subset.examples()], scores)

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Critic],
        tests: TestResults[Prediction],
    ) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        return report_detector(training, tests, fitted_on=calibrated.examples, aim=self.options.threshold_aim)


def compute_rows(
    training: FinishedTraining[DataModule],
    rows: Batches,
    numbers: NDArray[np.int64],
    compute: Callable[[Mapping[str, Any]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Computes numbers of these rows from their cached tokens; each process computes its part."""

    def compute_part(part: NDArray[np.int64]) -> list[Any]:
        chunks = [numbers[part[begin : begin + PAIRS_AT_ONCE]] for begin in range(0, len(part), PAIRS_AT_ONCE)]
        return [found for chunk in chunks for found in compute(rows.columns(chunk)).tolist()]

    return np.array(training.divide_work(len(numbers), compute_part))


def fit_evidence(
    evidence: Floats, gold: NDArray[Any], sources: Sequence[str], *, with_odds: bool = True
) -> tuple[tuple[float, ...], str]:
    """Fits the weights of a critic's log-odds and of word and token features; returns them with a note if it cannot.

        log-odds = w0 * the encoder's log-odds + sum over k of w_k * feature k + bias

    `model.evidence=words` fits a logistic regression on eight word features. With `words_and_tokens` three scores are
    summed: that regression, unknown character 4-grams, and the response's weakest tokens (`critic.token_support`). Each
    is divided by its standard deviation within a dataset, so that they have equal influence. Their relative weights are
    not fitted, because they differ between domains: weights that fit some domains rank others worse.

    With `model.evidence_alone=true` w0 is 0: the model is not run on pairs, and nothing is trained.

    An encoder trained on a few domains ranks the pairs of another domain little better than unknown words do, and the
    two make different errors: their combination ranks better than either (research/experiments/taggers.md). The weights
    are fitted as a tagger's (`faithkit.calibration`), and each class of each dataset has the same total weight;
    otherwise the largest dataset would dominate. Each dataset has a separate bias in the fit, and the mean bias is
    kept: a single bias costs 2 points of AUROC on held-out domains.

    | Relative                           | Use it for                                               |
    |------------------------------------|----------------------------------------------------------|
    | `critic.tagger.span_calibration`   | the same for tokens and sentences                        |
    | `faithkit.baselines.word_features` | the words alone, without a model                         |
    | `critic.token_support`             | the weakest tokens, by an encoder that is not fine-tuned |
    | `critic.auxiliary_losses`          | an encoder that learns which words the knowledge lacks   |

    Args:
        sources: The dataset of each row.
        with_odds: Fits a weight for the log-odds, the first column; false sets it to 0.
    """
    names, dataset = np.unique(np.array(sources), return_inverse=True)
    indicators = np.eye(len(names))[dataset] if len(names) > 1 else None
    counts = row_weights(gold, sources)
    first = 0 if with_odds else 1
    fitted, bias, note = fit_line(evidence[:, first:NUM_FITTED], gold, counts, indicators, leads=with_odds)
    weights = np.array(fitted if with_odds else (0.0, *fitted))
    if evidence.shape[1] == NUM_FITTED:
        return (*weights.tolist(), bias), note
    scores = np.column_stack(
        [evidence[:, :NUM_FITTED] @ weights, evidence[:, NUM_FITTED], -evidence[:, NUM_FITTED + 1]]
    )
    residuals = np.empty_like(scores)  # within datasets
    for number in range(dataset.max(initial=-1) + 1):
        rows = dataset == number
        residuals[rows] = scores[rows] - np.average(scores[rows], axis=0, weights=counts[rows])
    spread = np.sqrt(np.average(residuals**2, axis=0, weights=counts))
    scale = 1 / np.where(spread > MIN_SPREAD, spread, np.inf)  # a constant column gets no weight
    (slope,), bias, sum_note = fit_line((scores @ scale)[:, None], gold, counts, indicators)
    regression, runs, tokens = slope * scale
    return (*(regression * weights).tolist(), float(runs), -float(tokens), bias), note or sum_note


def row_weights(gold: NDArray[Any], sources: Sequence[str]) -> Floats:
    """Computes weights that give each class of each dataset the same total; their mean is 1 [rows].

    >>> import numpy as np
    >>> from critic.sequence.task import row_weights
    >>> row_weights(np.array([1, 0, 0, 1]), ["begin", "begin", "begin", "snli"]).tolist()  # 3 classes of datasets
    [1.3333333333333333, 0.6666666666666666, 0.6666666666666666, 1.3333333333333333]
    """
    _, group = np.unique(
        [f"{source}\0{label}" for source, label in zip(sources, gold, strict=True)], return_inverse=True
    )
    size = np.bincount(group)
    return len(gold) / len(size) / size[group]
