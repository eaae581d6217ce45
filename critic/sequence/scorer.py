"""Defines the public class `Critic`, which scores (knowledge, response) pairs.

Pairs are sorted by length and batched by tokens, so there is almost no padding. Knowledge longer than the model's
length is read in overlapping windows (`max_windows` of them, or all), and a response gets the lowest log-odds of these.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.runtime import (
    ONNX,
    SINGLE,
    History,
    Knowledge,
    LoadedCheckpoint,
    Request,
    answer_call,
    apply_precision,
    calibration_pairs,
    check_precision,
    default_batch_tokens,
    judge_examples,
    load_checkpoint,
    stream_results,
    to_inputs,
)
from critic.sequence.settings import Settings
from data_modules.encoding.pair_encoder import EVIDENCE, RUNS, PairEncoder
from faithkit import arguments
from faithkit.arguments import ManyResponses, OneResponse
from faithkit.calibration import IS_HALLUCINATED, ScoreCalibration, is_unsure, linear, log_odds
from faithkit.detector import CRITIC
from faithkit.errors import UserError, shorten
from faithkit.fast import FIRST_TOKEN, Batch, accelerate, run_batches
from faithkit.files.model_folder import SIDECAR
from faithkit.languages import ENGLISH
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Example, Prediction, join_passages

# By the number or the name of a class.
ClassLabels: TypeAlias = Mapping[int | str, str]
Columns: TypeAlias = Mapping[str, Any]
log = logging.getLogger("faithkit")
PAIRS_AT_ONCE = 2048  # pairs that are tokenised and sorted together
EXAMPLE = f"labels={{0: {FAITHFUL}, 1: {HALLUCINATED}}}"
HINT = f"give the meaning of each class: {EXAMPLE}, in quotes on the command line"


def hallucinated_classes(names: Sequence[str], labels: ClassLabels | None, place: str) -> tuple[bool, ...]:
    """Returns for each class of a model whether it means hallucinated.

    Args:
        names: The names of the classes in the model's configuration.
        labels: The meaning of the classes; None if their names are faithful and hallucinated.

    Raises:
        UserError: The meaning of a class is unknown, or the labels do not match the classes.
    """
    lowered = [str(name).lower() for name in names]
    have = f"classes are {', '.join(f'{number}: {shorten(name, 30)}' for number, name in enumerate(names))}"
    if labels is None:
        if sorted(lowered) != sorted(LABELS):
            raise UserError(f"this external classifier's {have}", place=place, hint=HINT)
        labels = dict(enumerate(lowered))
    found: dict[int | None, Any] = {}  # by the number of the class; None if there is no such class
    for key, meaning in labels.items() if isinstance(labels, Mapping) else ():
        number: Any = key
        if isinstance(key, str):
            name = key.lower()
            number = lowered.index(name) if name in lowered else int(key) if key.isdecimal() else None
        is_class = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(names)
        found[number if is_class else None] = meaning
    is_complete = found.keys() == set(range(len(names))) and len(found) == len(labels)
    if not is_complete or {str(meaning) for meaning in found.values()} != set(LABELS):
        problem = (
            f"labels is {shorten(labels)}; it must give every class its meaning, {' or '.join(LABELS)}. The {have}"
        )
        raise UserError(problem, place=place, hint=HINT)
    return tuple(found[number] == HALLUCINATED for number in range(len(names)))


def window_logits(
    model: Any, encoder: PairEncoder, columns: Columns, batch_tokens: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Computes the logits of every window [windows, classes], and the row that each belongs to [windows]."""
    windows = encoder.windows(columns)

    def run(rows: Batch) -> Tensor:
        batch = encoder.collate_windows(columns, windows.take(rows))
        found: Tensor = model(**to_inputs(batch, model, can_pack=True)).logits
        return found

    logits = np.empty((len(windows), model.config.num_labels), np.float32)
    for rows, part in run_batches(windows.lengths, batch_tokens, run):
        logits[rows] = part
    return logits, windows.row


def encode_ahead(encode: Callable[[slice], Columns], count: int, device: torch.device) -> Iterator[Columns]:
    """Yields the columns of `count` rows chunk by chunk; while a GPU computes one chunk, a thread encodes the next."""
    chunks = [slice(begin, begin + PAIRS_AT_ONCE) for begin in range(0, count, PAIRS_AT_ONCE)]
    if device.type == "cpu" or len(chunks) < 2:
        yield from map(encode, chunks)
        return
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(encode, chunks[0])
        for chunk in chunks[1:]:
            columns, following = following.result(), thread.submit(encode, chunk)
            yield columns
        yield following.result()


class Thresholds(TypedDict, total=False):
    """The probabilities that decide labels; see `Critic.score`."""

    threshold: float | None
    abstain_at: float | None


class Critic:
    """A trained critic: predicts the probability that a response contains something its knowledge does not support.

        from faithkit import Critic
        critic = Critic.load("runs/...")
        critic.score(knowledge="The Danube flows through ten countries.", response="It flows through twelve.")

    `score` (also `predict`) takes one response or a list, `stream` any number of responses, `predict_examples` records
    of a dataset. Knowledge may have any length. The score of a response does not depend on its batch: probabilities
    agree up to float rounding (1e-6 in fp32), and so do labels, unless a probability is that close to the threshold.

    Args:
        model: A sequence classifier of transformers with the labels faithful and hallucinated.
        calibration: Converts log-odds to probabilities, and probabilities to labels.
        batch_tokens: Tokens of a batch; changes the speed, not the scores. None chooses by the device.
        name: The model's name in `repr`; None takes its class.
        hallucinated: For each class of the model, whether it means hallucinated.
        weights: Weights of the evidence features (`critic.sequence.task`); empty uses the encoder's log-odds alone.

    Attributes:
        languages: Those that it reads (`faithkit.languages`).
    """

    def __init__(
        self,
        model: Any,
        encoder: PairEncoder,
        calibration: ScoreCalibration,
        *,
        batch_tokens: int | None = None,
        name: str | None = None,
        hallucinated: Sequence[bool] = IS_HALLUCINATED,
        weights: tuple[float, ...] = (),
    ):
        self.model, self.encoder, self.calibration = model, encoder, calibration
        self.hallucinated, self.weights = tuple(hallucinated), weights
        self.languages: tuple[str, ...] = (ENGLISH,)
        self.name = name or type(model).__name__
        checked = arguments.read_count("batch_tokens", batch_tokens)
        self.batch_tokens = checked or default_batch_tokens(model)

    @classmethod
    @arguments.explain_keywords
    def load(
        cls,
        path: str | Path,
        *,
        device: str | None = None,
        precision: str = "32-true",
        batch_tokens: int | None = None,
        max_windows: int | str | None = None,
        labels: ClassLabels | None = None,
    ) -> "Critic":
        """Loads a critic from a run, an hf/ folder or a hub name.

        Args:
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            precision: 32-true, bf16, int8 (CPU), onnx (the graph of `export.py format=onnx`), or auto: the fastest
                of these on the hardware.
            max_windows: Number of windows that are read of knowledge longer than the model's length: those that share
                most words with the response. None reads as many as in training, "all" reads all
                (docs/guides/scoring.md).
            labels: For an external classifier, the meaning of each class, by its number or its name:
                `{0: "faithful", 1: "hallucinated"}`, `{"LABEL_0": "hallucinated", "LABEL_1": "faithful"}`. Classes
                named faithful and hallucinated need no labels.

        Raises:
            UserError: There is no model, it is of another kind, or the meaning of its classes is unknown.
        """
        path, device = arguments.read_path(path), arguments.read_device(device)
        check_precision(precision)
        batch_tokens = arguments.read_count("batch_tokens", batch_tokens)
        max_windows = arguments.read_windows(max_windows)
        onnx, auto = precision == ONNX, "AutoModelForSequenceClassification"
        loaded = load_checkpoint(path, auto, CRITIC, Settings.from_sidecar, device, onnx=onnx)
        critic = cls.of(loaded, path, batch_tokens=batch_tokens, max_windows=max_windows, labels=labels)
        calibrate = lambda: critic.odds(critic.encoder.encode_texts(*calibration_pairs()))  # noqa: E731
        critic.model = apply_precision(critic.model, precision, loaded.device, calibrate)
        return critic

    @classmethod
    def of(
        cls,
        loaded: LoadedCheckpoint,
        path: str,
        *,
        batch_tokens: int | None = None,
        max_windows: int | str | None = None,
        labels: ClassLabels | None = None,
    ) -> "Critic":
        """Makes a critic from a loaded model; `labels` or class names explain an external model's classes."""
        settings, chosen = loaded.settings, IS_HALLUCINATED
        if settings is not None and labels is not None:
            problem = "labels is for external critics: the classes of this one are in its faithkit.json"
            raise UserError(problem, place=path, hint="leave labels out")
        if settings is None:
            config = loaded.model.config
            chosen = hallucinated_classes([config.id2label[n] for n in range(config.num_labels)], labels, path)
            log.warning("%s has no %s: its probabilities are uncalibrated and its threshold is 0.5", path, SIDECAR)
            longest = min(512, getattr(config, "max_position_embeddings", 512) - 2)
            settings = Settings(
                max_length=longest, order="knowledge_response", calibration=ScoreCalibration(), origin={}
            )
        encoder = PairEncoder(
            tokenizer=loaded.tokenizer,
            max_length=settings.max_length,
            order=settings.order,
            max_knowledge_words=settings.max_knowledge_words,
            evidence=bool(settings.evidence),
            whole=settings.reads_tokens,
            max_windows=arguments.choose_windows(max_windows, settings.max_windows),
        )
        critic = cls(
            accelerate(loaded.model, FIRST_TOKEN),
            encoder,
            settings.calibration,
            batch_tokens=batch_tokens,
            name=path,
            hallucinated=chosen,
            weights=settings.evidence,
        )
        critic.languages = loaded.languages
        return critic

    @property
    def threshold(self) -> float:
        """The probability from which a response is labelled hallucinated."""
        return float(self.calibration.threshold)

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated."""
        self.calibration = replace(self.calibration, threshold=threshold)

    def __repr__(self) -> str:
        return f"Critic({self.name!r}, threshold={self.calibration.threshold:.4g}, device={str(self.device)!r})"

    @overload
    def score(
        self,
        knowledge: Knowledge,
        response: str,
        history: History = None,
        *,
        question: str | None = None,
        **thresholds: Unpack[Thresholds],
    ) -> Prediction: ...
    @overload
    def score(
        self,
        knowledge: Sequence[Knowledge],
        response: list[str],
        history: Sequence[History] | None = None,
        *,
        question: Sequence[str | None] | None = None,
        **thresholds: Unpack[Thresholds],
    ) -> list[Prediction]: ...
    @overload
    def score(
        self, *, threshold: float | None = None, abstain_at: float | None = None, **names: Unpack[OneResponse]
    ) -> Prediction: ...
    @overload
    def score(
        self, *, threshold: float | None = None, abstain_at: float | None = None, **names: Unpack[ManyResponses]
    ) -> list[Prediction]: ...
    @arguments.explain_overloads
    def score(
        self,
        knowledge: Any,
        response: Any,
        history: Any = None,
        *,
        threshold: float | None = None,
        abstain_at: float | None = None,
    ) -> Prediction | list[Prediction]:
        """Scores one response, or a list of responses.

        The scores of a list equal those of single calls, up to float rounding.

        Args:
            knowledge: A text, or a list of passages, which are joined by spaces; for a list of responses a list of
                these. `context=` is another name, and `answer=` of `response`.
            response: A text, or a list of texts.
            history: The turns before the response. Critics do not read it; it is checked, so that critic and tagger
                have the same interface.
            threshold: Probability from which a response is labelled hallucinated; None takes the stored threshold.
            abstain_at: Sets the label to None if its probability of being correct is lower; None never abstains.

        Raises:
            UserError: Lists have different lengths, or a text is empty or no text.
        """
        judge = partial(self._scores, threshold=threshold, abstain_at=abstain_at)
        return answer_call(judge, knowledge, response, history, join_passages)

    predict = score  # as a tagger has it

    @arguments.explain_keywords
    def stream(
        self,
        knowledge: Iterable[Knowledge],
        response: Iterable[str],
        history: Iterable[History] | None = None,
        *,
        threshold: float | None = None,
        abstain_at: float | None = None,
        progress: bool = True,
    ) -> Iterator[Prediction]:
        """Yields the scores of any number of responses, as `score` computes them, without holding them all.

        It reads a few thousand items at a time, so the iterables may be generators of any length.

        Args:
            progress: Shows a progress bar.
        """
        yield from stream_results(
            partial(self._scores, threshold=threshold, abstain_at=abstain_at),
            knowledge,
            response,
            history,
            join=join_passages,
            chunk_size=PAIRS_AT_ONCE,
            description="scoring",
            progress=progress,
        )

    def _scores(
        self, requests: Sequence[Request], threshold: float | None = None, abstain_at: float | None = None
    ) -> list[Prediction]:
        threshold = arguments.read_probability("threshold", threshold)
        abstain_at = arguments.read_probability("abstain_at", abstain_at)
        found = self.probabilities([one.knowledge for one in requests], [one.response for one in requests])
        scores = []
        for probability in found.tolist():
            label = self.calibration.label(probability, threshold)
            abstains = is_unsure(label, probability, abstain_at)
            scores.append(Prediction(id=SINGLE, label=None if abstains else label, score=probability))
        return scores

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        yield from judge_examples(
            self._scores, examples, chunk_size=PAIRS_AT_ONCE, description="scoring", progress=progress
        )

    def probabilities(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Computes the calibrated P(hallucinated) of each pair."""
        encode = lambda rows: self.encoder.encode_texts(knowledge[rows], response[rows])  # noqa: E731
        odds = [self.odds(columns) for columns in encode_ahead(encode, len(knowledge), self.device)]
        return self.calibration.scores(np.concatenate([np.zeros(0), *odds]))

    def odds(self, columns: Columns) -> NDArray[np.float64]:
        """Computes the uncalibrated log-odds of hallucinated of tokenised pairs, the columns of the encoder [rows]."""
        features = self.features(columns, with_odds=not self.weights or self.weights[0] != 0)
        return linear(features, self.weights) if self.weights else features[:, 0]

    def features(self, columns: Columns, *, with_odds: bool = True) -> NDArray[np.float64]:
        """Computes the features [rows, features]: log-odds, words, character runs, weakest tokens.

        Args:
            columns: Of the encoder; its settings select the features.
            with_odds: Runs the model for the log-odds, the lowest over a pair's windows; false leaves them at 0, for a
                critic that gives them no weight.
        """
        odds = np.full(len(columns["response"]), np.inf if with_odds else 0.0)
        if with_odds:
            logits, owner = window_logits(self.model, self.encoder, columns, self.batch_tokens)
            np.minimum.at(odds, owner, log_odds(logits, self.hallucinated))
        features = [odds]
        if self.encoder.evidence:
            features += [np.asarray(columns[name], np.float64) for name in EVIDENCE]
        if self.encoder.whole:
            from critic.token_support import SECOND_TO_LAST, TokenSupport  # few critics need it

            support = TokenSupport(
                self.model,
                self.encoder.tokenizer,
                layer=SECOND_TO_LAST,
                batch_tokens=self.batch_tokens,
                max_windows=self.encoder.max_windows,
            )
            features += [np.asarray(columns[RUNS], np.float64), support.weakest(columns)]
        return np.stack(features, axis=1)

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device
