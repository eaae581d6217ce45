"""Scoring with a trained critic: one pair or many, equal in any batch.

Pairs are ordered by length and batched by tokens, so almost nothing is padding. Knowledge longer than the model's
length is read through overlapping windows; a response is as hallucinated as its best window leaves it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from critic.load_checkpoint import LoadedCheckpoint, load_checkpoint
from critic.precision import apply_precision
from critic.score_calibration import ScoreCalibration, log_odds
from critic.settings import Settings
from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.tokens import tokenize
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import CRITIC
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.training.batching import plan_batches

CHUNK = 2048  # pairs tokenised and ordered at a time
# Tokens of a batch. A CPU is fastest while a layer's activations stay in its cache, and small batches of like lengths
# have the least padding (EXPERIMENTS.md, Speed); a GPU needs many at once.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 16_384


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict on one response.

    Args:
        label: hallucinated or faithful, by the stored threshold.
        probability: Calibrated P(hallucinated).
    """

    label: str
    probability: float


class Critic:
    """A trained critic, ready to score.

    Args:
        batch_tokens: Tokens of a batch; changes the speed, not the scores. None takes what suits the model's device.
    """

    def __init__(
        self, model: Any, encoder: PairEncoder, calibration: ScoreCalibration, *, batch_tokens: int | None = None
    ):
        self.model, self.encoder, self.calibration = model, encoder, calibration
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self._device().type == "cpu" else GPU_BATCH_TOKENS)

    @classmethod
    def load(
        cls, path: str, *, device: str | None = None, precision: str = "32-true", batch_tokens: int | None = None
    ) -> "Critic":
        """A critic from a run, an hf/ folder or a hub name; a classifier of another's making is read by its labels.

        Args:
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            precision: 32-true, bf16, int8 (CPU), or auto: what the hardware is fastest in.
        """
        loaded = load_checkpoint(path, "AutoModelForSequenceClassification", CRITIC, Settings.from_sidecar, device)
        critic = cls.of(loaded, path, batch_tokens=batch_tokens)
        critic.model = apply_precision(
            loaded.model, precision, loaded.device, lambda: critic.odds(*calibration_pairs())
        )
        return critic

    @classmethod
    def of(cls, loaded: LoadedCheckpoint[Settings], path: str, *, batch_tokens: int | None = None) -> "Critic":
        """A critic of a model that is loaded already; without a sidecar its labels must be ours."""
        settings = loaded.settings or foreign_settings(loaded.model.config, path)
        encoder = PairEncoder(tokenizer=loaded.tokenizer, max_length=settings.max_length, order=settings.order)
        return cls(loaded.model, encoder, settings.calibration, batch_tokens=batch_tokens)

    @overload
    def score(self, knowledge: str, response: str) -> Score: ...
    @overload
    def score(self, knowledge: list[str], response: list[str]) -> list[Score]: ...
    def score(self, knowledge: str | list[str], response: str | list[str]) -> Score | list[Score]:
        """Judges one pair, or many at once.

        Raises:
            UserError: Lists of different lengths, something that is no text, or an empty text.
        """
        single = isinstance(knowledge, str)
        if single != isinstance(response, str):
            raise UserError("knowledge and response must both be a text, or both be lists")
        first = [knowledge] if isinstance(knowledge, str) else list(knowledge)
        second = [response] if isinstance(response, str) else list(response)
        if len(first) != len(second):
            raise UserError(f"{len(first)} knowledge texts but {len(second)} responses")
        for name, texts in (("knowledge", first), ("response", second)):
            for place, text in enumerate(texts):
                if not isinstance(text, str) or not text.strip():
                    raise UserError(
                        f"{name} must be text that is not empty, got {shorten(text)}", place=f"item {place}"
                    )
        scores = [Score(self.calibration.label(p), float(p)) for p in self.probabilities(first, second)]
        return scores[0] if single else scores

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Predictions of the examples, in their order."""
        for begin in tqdm(range(0, len(examples), CHUNK), "scoring", disable=not progress, unit="chunk"):
            chunk = examples[begin : begin + CHUNK]
            scores = self.probabilities([e.knowledge for e in chunk], [e.response for e in chunk])
            yield from self.calibration.predictions([e.id for e in chunk], scores)

    def probabilities(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Calibrated P(hallucinated) of each pair."""
        return self.calibration.scores(self.odds(knowledge, response))

    def odds(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        """Log-odds of hallucinated of each pair, not calibrated."""
        parts = [
            self._chunk(knowledge[begin : begin + CHUNK], response[begin : begin + CHUNK])
            for begin in range(0, len(knowledge), CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _chunk(self, knowledge: Sequence[str], response: Sequence[str]) -> NDArray[np.float64]:
        logits, owner = window_logits(self.model, self.encoder, knowledge, response, self.batch_tokens)
        best = np.full(len(knowledge), np.inf)
        np.minimum.at(best, owner, log_odds(logits))
        return best

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def window_logits(
    model: Any, encoder: PairEncoder, knowledge: Sequence[str], response: Sequence[str], batch_tokens: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """A classifier's logits of every window (windows, classes), and which pair each belongs to."""
    ids, second_start, owner = encode_windows(encoder, knowledge, response)
    logits = np.empty((len(ids), model.config.num_labels), np.float32)
    for rows in plan_batches(ids.lengths.astype(np.int32), None, batch_tokens, None):
        logits[rows] = _logits(
            model, encoder.collate({"input_ids": ids.take(rows), "second_start": second_start[rows]})
        )
    return logits, owner


@torch.inference_mode()
def _logits(model: Any, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    device = next(model.parameters()).device
    inputs = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
    if bool(inputs["attention_mask"].all()):
        del inputs["attention_mask"]  # nothing is masked: attention takes its faster way
    return model(**inputs).logits.float().cpu().numpy()


def encode_windows(
    encoder: PairEncoder, knowledge: Sequence[str], response: Sequence[str]
) -> tuple[Ragged, NDArray[np.int64], NDArray[np.int64]]:
    """Sequences, where their second text begins, and which pair each belongs to; windows overlap by half."""
    first, second = tokenize(encoder.tokenizer, knowledge), tokenize(encoder.tokenizer, response)
    room = encoder.room(second.lengths)
    step = np.maximum(1, room.knowledge // 2)
    extra = np.maximum(0, first.lengths - room.knowledge)
    count = 1 + -(-extra // step)
    owner = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    start = np.minimum(place * step[owner], extra[owner])  # the last window ends with the text
    length = np.minimum(first.lengths, room.knowledge)[owner]
    cut = second.slice_rows(owner, np.zeros(len(owner), np.int64), room.response[owner])
    ids, second_start = encoder.assemble(first.slice_rows(owner, start, length), cut)
    return ids, second_start, owner


def calibration_pairs(count: int = 48) -> tuple[list[str], list[str]]:
    """Knowledge of different lengths with responses, always the same: what int8 measures its ranges on."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 8 * count))
    knowledge = [" ".join(e.knowledge for e in examples[i : i + 1 + i % 8]) for i in range(count)]
    return knowledge, [example.response for example in examples[:count]]


def foreign_settings(config: Any, folder: str) -> Settings:
    labels = {str(label).lower(): index for index, label in config.id2label.items()}
    if labels != {FAITHFUL: 0, HALLUCINATED: 1}:
        have = ", ".join(labels)
        hint = f"give a critic of ours: labels {FAITHFUL} and {HALLUCINATED}"
        raise UserError(f"a checkpoint of another kind: its labels are {have}", place=folder, hint=hint)
    longest = min(512, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(max_length=longest, order="knowledge_response", calibration=ScoreCalibration(), origin={})
