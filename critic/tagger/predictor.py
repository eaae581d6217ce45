"""Tagging with a trained tagger: one answer or many, equal in any batch.

Texts of any length are read through overlapping windows, all of them batched by length. A token that stands in several
windows is as hallucinated as the window says that supports it best.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from critic.load_checkpoint import load_checkpoint
from critic.precision import apply_precision
from critic.tagger.evidence import response_evidence, words_of
from critic.tagger.fit_calibration import Answers
from critic.tagger.forward import answer_places, run_model
from critic.tagger.modernbert import answer_logits, reads_answers
from critic.tagger.requests import Request, Tagged, TaggedSpan, dialogue_requests, request_of, requests_of
from critic.tagger.settings import Settings, tagger_labels
from critic.tagger.span_calibration import SpanCalibration
from data_modules.encoding.ragged import Ragged, stack_rows
from data_modules.encoding.spans import SpanEncoder, question_text
from faithkit.errors import UserError
from faithkit.files.model_folder import TAGGER
from faithkit.packing import use_packed_attention
from faithkit.records import Example, Prediction, Span
from faithkit.span_types import UNTYPED
from faithkit.training.batching import plan_batches

CHUNK = 1024  # answers tokenised and ordered at a time
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32_768


class Tagger:
    """A trained tagger, ready to use.

    from critic import Tagger
    tagger = Tagger.load("runs/...")
    tagger.predict(context="...", question="...", answer="...").spans

    Args:
        batch_tokens: Tokens of a batch; changes the speed, not the result. None takes what suits the model's device.
    """

    def __init__(
        self, model: Any, encoder: SpanEncoder, calibration: SpanCalibration, *, batch_tokens: int | None = None
    ):
        self.model, self.encoder, self.calibration = model, encoder, calibration
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self._device().type == "cpu" else GPU_BATCH_TOKENS)

    @classmethod
    def load(
        cls, path: str, *, device: str | None = None, precision: str = "32-true", batch_tokens: int | None = None
    ) -> "Tagger":
        """A tagger from a run, an hf/ folder or a hub name.

        Args:
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            precision: 32-true, bf16, int8 (CPU), or auto: what the hardware is fastest in.
        """
        loaded = load_checkpoint(path, "AutoModelForTokenClassification", TAGGER, Settings.from_sidecar, device)
        settings = loaded.settings or foreign_settings(loaded.model.config, path)
        packed = use_packed_attention(loaded.model)
        encoder = SpanEncoder(tokenizer=loaded.tokenizer, max_length=settings.max_length, packed=packed)
        tagger = cls(loaded.model, encoder, settings.calibration, batch_tokens=batch_tokens)
        tagger.model = apply_precision(
            loaded.model, precision, loaded.device, lambda: tagger.odds(calibration_requests())
        )
        return tagger

    def predict(
        self, context: str | Sequence[str], answer: str | Sequence[str], question: str | Sequence[str] | None = None
    ) -> Any:
        """Tags one answer, or many at once: lists give a list.

        Raises:
            UserError: Lists of different lengths, something that is no text, or an empty text.
        """
        single, requests = requests_of(context, answer, question)
        tagged = self.tag(requests)
        return tagged[0] if single else tagged

    def predict_dialogue(self, context: str, turns: Sequence[tuple[str, str]]) -> list[Tagged | None]:
        """Tags every turn of the assistant, each with the turns before it; None for the turns of others.

        Args:
            turns: (speaker, text), for example ("user", "Who wrote it?"); the assistant's are tagged.
        """
        places, requests = dialogue_requests(context, turns)
        result: list[Tagged | None] = [None] * len(turns)
        for place, tagged in zip(places, self.tag(requests), strict=True):
            result[place] = tagged
        return result

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Predictions of the examples, in their order."""
        for begin in tqdm(range(0, len(examples), CHUNK), "tagging", disable=not progress, unit="chunk"):
            chunk = examples[begin : begin + CHUNK]
            requests = [request_of(example) for example in chunk]
            for example, tagged in zip(chunk, self.tag(requests), strict=True):
                spans = tuple(Span(start=s.start, end=s.end, label=s.label, score=s.score) for s in tagged.spans)
                yield Prediction(id=example.id, label=tagged.label, score=tagged.score, spans=spans)

    def tag(self, requests: Sequence[Request]) -> list[Tagged]:
        """Verdict and spans of each answer."""
        return [
            tagged
            for begin in range(0, len(requests), CHUNK)
            for tagged in self._tag_chunk(requests[begin : begin + CHUNK])
        ]

    def answers(self, examples: Sequence[Example]) -> Answers:
        """The tokens of the answers with their log-odds and evidence: what a calibration is fitted on."""
        requests = [request_of(example) for example in examples]
        if not requests:
            none = np.zeros(0, np.int64)
            return Answers(none, none, np.zeros(0), none, words_of(none, none, none, []))
        odds, start, end = self.odds(requests)
        owner = np.repeat(np.arange(len(requests)), start.lengths)
        starts, ends = start.values.astype(np.int64), end.values.astype(np.int64)
        return Answers(starts, ends, odds, owner, words_of(starts, ends, owner, requests))

    def odds(self, requests: Sequence[Request]) -> tuple[NDArray[np.float64], Ragged, Ragged]:
        """Log-odds of hallucinated of every answer token, not calibrated, and where the tokens begin and end."""
        parts = [self._logits(requests[begin : begin + CHUNK]) for begin in range(0, len(requests), CHUNK)]
        odds = np.concatenate([_log_odds(logits) for logits, _, _ in parts])
        return odds, stack_rows([start for _, start, _ in parts]), stack_rows([end for _, _, end in parts])

    def _tag_chunk(self, requests: Sequence[Request]) -> list[Tagged]:
        logits, start, end = self._logits(requests)
        odds = _log_odds(logits)
        owner = np.repeat(np.arange(len(requests)), start.lengths)
        starts, ends = start.values.astype(np.int64), end.values.astype(np.int64)
        words = words_of(starts, ends, owner, requests)
        probability = self.calibration.probabilities(odds, words)
        found = self.calibration.spans(starts, ends, probability, owner)
        size = ends - starts
        spans: list[list[TaggedSpan]] = [[] for _ in requests]
        for begin, stop, first, last in zip(found.start, found.end, found.first, found.last, strict=True):
            own = slice(first, last + 1)
            place = int(owner[first])
            spans[place].append(
                TaggedSpan(
                    start=int(begin),
                    end=int(stop),
                    text=requests[place].answer[begin:stop],
                    label=self._label(logits[own]),
                    score=float(np.average(probability[own], weights=size[own])),
                )
            )
        evidence = response_evidence(odds, probability, size, owner, words, len(requests))
        scores = self.calibration.response_scores(evidence)
        return [
            Tagged(label=self.calibration.label(score), score=float(score), spans=own)
            for score, own in zip(scores, spans, strict=True)
        ]

    def _label(self, logits: NDArray[np.float32]) -> str:
        """The type with most probability over the span's tokens."""
        if logits.shape[1] == 2:
            return UNTYPED
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return str(self.model.config.id2label[1 + int(shares[:, 1:].sum(0).argmax())])

    def _logits(self, requests: Sequence[Request]) -> tuple[NDArray[np.float32], Ragged, Ragged]:
        """For every answer token the logits of its best window, and where the tokens begin and end."""
        columns = self.encoder.encode_texts(
            [r.question for r in requests], [r.context for r in requests], [r.answer for r in requests]
        )
        start, end = columns["start"], columns["end"]
        assert isinstance(start, Ragged) and isinstance(end, Ragged)
        best = np.full((len(start.values), self.model.config.num_labels), np.nan, np.float32)
        least = np.full(len(best), np.inf)
        windows = self.encoder.windows(columns)
        for rows in plan_batches(windows.lengths.astype(np.int32), None, self.batch_tokens, None):
            batch = self.encoder.collate_windows(columns, windows.take(np.sort(rows)))
            logits = self._run(batch)
            odds, token = _log_odds(logits), batch["token"]
            # The same token may stand several times in one batch: what is written last is the least.
            order = np.argsort(-odds, kind="stable")
            order = order[odds[order] < least[token[order]]]
            least[token[order]] = odds[order]
            best[token[order]] = logits[order]
        return best, start, end

    @torch.inference_mode()
    def _run(self, batch: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        inputs = {name: torch.from_numpy(array).to(self._device()) for name, array in batch.items()}
        if self.encoder.packed and reads_answers(self.model):
            logits = answer_logits(self.model, inputs)
        else:
            logits = run_model(self.model, inputs).logits.flatten(0, 1)[answer_places(inputs)]
        return logits.float().cpu().numpy()

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _log_odds(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    return np.logaddexp.reduce(values[:, 1:], axis=1) - values[:, 0]


def foreign_settings(config: Any, path: str) -> Settings:
    """Reads a tagger without our sidecar by its number of labels, outside first."""
    architecture = (config.architectures or ["ForTokenClassification"])[0]
    if not architecture.endswith("ForTokenClassification"):
        hint = "give a tagger of ours, or train one from these weights"
        raise UserError(f"no token classifier: these are the weights of {architecture}", place=path, hint=hint)
    if config.num_labels not in (2, len(tagger_labels(True))):
        have = ", ".join(map(str, config.id2label.values()))
        hint = "give a tagger of ours, or one whose first label is outside and whose second is hallucinated"
        raise UserError(f"a checkpoint of another kind: its labels are {have}", place=path, hint=hint)
    longest = min(4096, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(
        labels=tuple(config.id2label.values()), max_length=longest, calibration=SpanCalibration(), origin={}
    )


def calibration_requests(count: int = 24) -> list[Request]:
    """Contexts of different lengths with answers, always the same: what int8 measures its ranges on."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 8 * count))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(count)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]
