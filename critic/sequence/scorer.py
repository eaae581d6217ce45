"""The public class `Critic`: scores one (knowledge, response) pair or many.

Pairs are ordered by length and batched by tokens, so almost nothing is padding. Knowledge longer than the model's
length is read through overlapping windows, all or `max_windows` of them, and a response takes the lowest log-odds of
these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from critic.load_checkpoint import LoadedCheckpoint, load_checkpoint
from critic.logistic import linear
from critic.requests import (
    History,
    Knowledge,
    Request,
    read_requests,
)
from critic.runtime.calibration_texts import calibration_pairs
from critic.runtime.last_layer import first_token_only
from critic.runtime.onnx_model import ONNX
from critic.runtime.precision import apply_precision, check_precision
from critic.sequence.class_labels import ClassLabels, hallucinated_classes
from critic.sequence.read_evidence import read_evidence
from critic.sequence.score import Score, read_cuts
from critic.sequence.settings import Settings, foreign_settings
from critic.stream import stream_results
from data_modules.encoding.pairs import PairEncoder
from faithkit import arguments
from faithkit.arguments import read_examples
from faithkit.calibration.score_calibration import IS_HALLUCINATED, ScoreCalibration, is_unsure
from faithkit.detector import CRITIC
from faithkit.errors import UserError
from faithkit.passages import join_passages
from faithkit.records import Example, Prediction

CHUNK = 2048  # pairs tokenised and ordered at a time
# Tokens of a batch. A CPU is fastest while a layer's activations stay in its cache, and small batches of like lengths
# have the least padding (EXPERIMENTS.md, Speed); a GPU needs many at once.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 16_384


class Critic:
    """A trained critic: tells how likely a response says what its knowledge does not support.

        from faithkit import Critic
        critic = Critic.load("runs/...")
        critic.sequence.score(knowledge="The Danube flows through ten countries.", response="It flows through twelve.")

    `score` takes one response or a list, `stream` any number of them, `predict_examples` records of a dataset.
    Knowledge of any length is read to its end. A response gets the same score alone, in a list and in any order:
    probabilities agree up to float rounding (1e-6 in fp32), and so does the label, unless the probability lies that
    close to the threshold.

    Args:
        model: A sequence classifier of transformers with the labels faithful and hallucinated.
        calibration: Turns log-odds into probabilities and these into labels.
        batch_tokens: Tokens of a batch; changes the speed, not the scores. None takes what suits the model's device.
        name: The model as `repr` tells it; None takes its class.
        hallucinated: Which of the model's classes mean hallucinated.
        weights: Of evidence (`critic.sequence.evidence`); none where the encoder's log-odds are all.
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
        self.name = name or type(model).__name__
        own_tokens = arguments.read_count("batch_tokens", batch_tokens)
        self.batch_tokens = own_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)

    @classmethod
    @arguments.explain_keywords
    def load(
        cls,
        path: str | Path,
        *,
        device: str | None = None,
        precision: str = "32-true",
        batch_tokens: int | None = None,
        max_windows: int | None = None,
        labels: ClassLabels | None = None,
    ) -> "Critic":
        """Loads a critic from a run, an hf/ folder or a hub name.

        Args:
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            precision: 32-true, bf16, int8 (CPU), onnx (the graph of `export.py format=onnx`), or auto: what the
                hardware is fastest in.
            max_windows: Of knowledge that is longer than the model's length, read this many windows: those that share
                most words with the response. None reads all (docs/scoring.md).
            labels: Of a classifier from elsewhere, what each class means, by its number or its name:
                `{0: "faithful", 1: "hallucinated"}`, `{"LABEL_0": "hallucinated", "LABEL_1": "faithful"}`. Classes
                named faithful and hallucinated need none.

        Raises:
            UserError: There is none, it is of another kind, or nothing says what its classes mean.
        """
        path, device = arguments.read_path(path), arguments.read_device(device)
        check_precision(precision)
        batch_tokens = arguments.read_count("batch_tokens", batch_tokens)
        max_windows = arguments.read_count("max_windows", max_windows)
        onnx, auto = precision == ONNX, "AutoModelForSequenceClassification"
        loaded = load_checkpoint(path, auto, CRITIC, Settings.from_sidecar, device, onnx=onnx)
        critic = cls.of(loaded, path, batch_tokens=batch_tokens, max_windows=max_windows, labels=labels)
        critic.model = apply_precision(
            critic.model, precision, loaded.device, lambda: critic.odds(*calibration_pairs())
        )
        return critic

    @classmethod
    def of(
        cls,
        loaded: LoadedCheckpoint[Settings],
        path: str,
        *,
        batch_tokens: int | None = None,
        max_windows: int | None = None,
        labels: ClassLabels | None = None,
    ) -> "Critic":
        """Makes a critic of a loaded model; without a sidecar `labels` or their names say what its classes mean."""
        settings, chosen = loaded.settings, IS_HALLUCINATED
        if settings is not None and labels is not None:
            problem = "labels is for a critic from elsewhere: this one says itself what its classes mean"
            raise UserError(problem, place=path, hint="leave labels out")
        if settings is None:
            config = loaded.model.config
            chosen = hallucinated_classes([config.id2label[n] for n in range(config.num_labels)], labels, path)
            settings = foreign_settings(config, path)
        encoder = PairEncoder(
            tokenizer=loaded.tokenizer,
            max_length=settings.max_length,
            order=settings.order,
            max_knowledge_words=settings.max_knowledge_words,
            evidence=bool(settings.evidence),
            whole=settings.reads_tokens,
            max_windows=max_windows,
        )
        return cls(
            first_token_only(loaded.model),
            encoder,
            settings.calibration,
            batch_tokens=batch_tokens,
            name=path,
            hallucinated=chosen,
            weights=settings.evidence,
        )

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
        threshold: float | None = None,
        abstain_at: float | None = None,
    ) -> Score: ...
    @overload
    def score(
        self,
        knowledge: Sequence[Knowledge],
        response: list[str],
        history: Sequence[History] | None = None,
        *,
        threshold: float | None = None,
        abstain_at: float | None = None,
    ) -> list[Score]: ...
    @arguments.explain_keywords
    def score(
        self,
        knowledge: Any,
        response: Any,
        history: Any = None,
        *,
        threshold: float | None = None,
        abstain_at: float | None = None,
    ) -> Score | list[Score]:
        """Judges one response, or many at once: a list of responses gives a list of scores, in their order.

        The scores of a list are those of single calls, up to float rounding.

        Args:
            knowledge: A text, or a list of passages, which are joined by spaces; for a list of responses a list of
                these.
            response: A text, or a list of texts.
            history: The turns before the response. Critics are trained on knowledge and response alone: it is checked,
                so that calls of critic and tagger look alike, but changes no score.
            threshold: From this probability on a response is called hallucinated; None takes the stored one.
            abstain_at: Leaves the label out (None) where it is right with less than this probability; None always
                gives one.

        Raises:
            UserError: Lists of different lengths, something that is no text, or an empty text.
        """
        single, requests = read_requests(knowledge, response, history, join_passages)
        scores = self._scores(requests, *read_cuts(threshold, abstain_at))
        return scores[0] if single else scores

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
    ) -> Iterator[Score]:
        """Scores of any number of responses, one by one: what `score` gives, without holding them all.

        It reads a few thousand items at a time, so the iterables may be generators of any length.

        Args:
            progress: Shows a bar.
        """
        cuts = read_cuts(threshold, abstain_at)
        yield from stream_results(
            lambda requests: self._scores(requests, *cuts),
            knowledge,
            response,
            history,
            join=join_passages,
            chunk_size=CHUNK,
            description="scoring",
            progress=progress,
        )

    def _scores(self, requests: Sequence[Request], threshold: float | None, abstain_at: float | None) -> list[Score]:
        probabilities = self.probabilities([r.knowledge for r in requests], [r.response for r in requests])
        scores = []
        for probability in map(float, probabilities):
            label = self.calibration.label(probability, threshold)
            scores.append(Score(None if is_unsure(label, probability, abstain_at) else label, probability))
        return scores

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Predictions of the examples, in their order."""
        examples, quiet = read_examples(examples), not arguments.read_flag("progress", progress)
        for begin in tqdm(range(0, len(examples), CHUNK), "scoring", disable=quiet, unit="chunk"):
            chunk = examples[begin : begin + CHUNK]
            scores = self.probabilities([e.knowledge for e in chunk], [e.response for e in chunk])
            yield from self.calibration.predictions([e.id for e in chunk], scores)

    def probabilities(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Calibrated P(hallucinated) of each pair."""
        return self.calibration.scores(self.odds(knowledge, response))

    def odds(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Log-odds of hallucinated of each pair, not calibrated."""
        chunks = [slice(begin, begin + CHUNK) for begin in range(0, len(knowledge), CHUNK)]
        parts = [self.column_odds(self.encoder.encode_texts(knowledge[own], response[own])) for own in chunks]
        return np.concatenate(parts) if parts else np.zeros(0)

    def column_odds(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Log-odds of hallucinated of each pair, from its cached tokens: columns of `PairEncoder`."""
        if not self.weights:
            return self.evidence(columns)[:, 0]
        return linear(self.evidence(columns, own=self.weights[0] != 0), self.weights)

    def evidence(self, columns: Mapping[str, Any], *, own: bool = True) -> NDArray[np.float64]:
        """All that is weighed of each pair, the log-odds first [pairs, features] (`critic.sequence.read_evidence`)."""
        return read_evidence(
            self.model,
            self.encoder,
            columns,
            batch_tokens=self.batch_tokens,
            hallucinated=self.hallucinated,
            own=own,
        )

    @property
    def device(self) -> torch.device:
        """Gives the model's device."""
        return self.model.device
