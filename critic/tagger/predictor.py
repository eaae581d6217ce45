"""Tagging with a trained tagger: one response or many, equal in any batch.

Texts of any length are read through overlapping windows, all of them batched by length. A token that stands in several
windows is as hallucinated as the window says that supports it best.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from critic.load_checkpoint import load_checkpoint
from critic.precision import apply_precision
from critic.requests import (
    History,
    Knowledge,
    Request,
    number_passages,
    read_threshold,
    request_of,
    stream_requests,
)
from critic.tagger.evidence import response_evidence, words_of
from critic.tagger.fit_calibration import Answers
from critic.tagger.forward import answer_places, exact_log_odds, run_model
from critic.tagger.modernbert import answer_logits, reads_answers
from critic.tagger.requests import Tagged, TaggedSpan, dialogue_requests, read_question
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

CHUNK = 1024  # responses tokenised and ordered at a time
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32_768


class Tagger:
    """A trained tagger: marks the characters of a response that its knowledge does not support.

        from faithkit import Tagger
        tagger = Tagger.load("runs/...")
        tagger.predict(knowledge="...", response="...", history=["Who built it?"]).spans

    `predict` takes one response or a list, `stream` any number of them, `predict_dialogue` the turns of a dialogue,
    `predict_examples` records of a dataset. Texts of any length are read to their end. What is said of a response does
    not depend on what is tagged beside it, but for the last digits of floating-point numbers.

    Args:
        model: A token classifier of transformers: outside first, then hallucinated or its types.
        calibration: Turns log-odds into probabilities, spans and labels.
        batch_tokens: Tokens of a batch; changes the speed, not the result. None takes what suits the model's device.
        name: The model as `repr` tells it; None takes its class.
    """

    def __init__(
        self,
        model: Any,
        encoder: SpanEncoder,
        calibration: SpanCalibration,
        *,
        batch_tokens: int | None = None,
        name: str | None = None,
    ):
        self.model, self.encoder, self.calibration = model, encoder, calibration
        self.name = name or type(model).__name__
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)

    @classmethod
    def load(
        cls, path: str, *, device: str | None = None, precision: str = "32-true", batch_tokens: int | None = None
    ) -> "Tagger":
        """Loads a tagger from a run, an hf/ folder or a hub name.

        Args:
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            precision: 32-true, bf16, int8 (CPU), or auto: what the hardware is fastest in.

        Raises:
            UserError: There is none, or it is of another kind.
        """
        loaded = load_checkpoint(path, "AutoModelForTokenClassification", TAGGER, Settings.from_sidecar, device)
        settings = loaded.settings or foreign_settings(loaded.model.config, path)
        packed = use_packed_attention(loaded.model)
        encoder = SpanEncoder(tokenizer=loaded.tokenizer, max_length=settings.max_length, packed=packed)
        tagger = cls(loaded.model, encoder, settings.calibration, batch_tokens=batch_tokens, name=path)
        tagger.model = apply_precision(
            loaded.model, precision, loaded.device, lambda: tagger.odds(calibration_requests())
        )
        return tagger

    def __repr__(self) -> str:
        thresholds = f"threshold={self.calibration.response_threshold:.4g}"
        return f"Tagger({self.name!r}, {thresholds}, device={str(self.device)!r})"

    @overload
    def predict(
        self,
        knowledge: Knowledge | None = None,
        response: str | None = None,
        history: History = None,
        *,
        threshold: float | None = None,
        context: Knowledge | None = None,
        answer: str | None = None,
        question: str | None = None,
    ) -> Tagged: ...
    @overload
    def predict(
        self,
        knowledge: Sequence[Knowledge] | None = None,
        response: list[str] | None = None,
        history: Sequence[History] | None = None,
        *,
        threshold: float | None = None,
        context: Sequence[Knowledge] | None = None,
        answer: list[str] | None = None,
        question: list[str] | None = None,
    ) -> list[Tagged]: ...
    def predict(
        self,
        knowledge: Any = None,
        response: Any = None,
        history: Any = None,
        *,
        threshold: float | None = None,
        context: Any = None,
        answer: Any = None,
        question: Any = None,
    ) -> Tagged | list[Tagged]:
        """Tags one response, or many at once: a list of responses gives a list of results, in their order.

        Args:
            knowledge: A text, or a list of passages, which are numbered as RAGTruth's are ("passage 1:..."); for a list
                of responses a list of these.
            response: A text, or a list of texts.
            history: The turns before the response, the oldest first: texts, `Turn`s, (speaker, text) pairs, or one text
                for the last turn alone; for a list of responses a list of these.
            threshold: From this probability on a response is called hallucinated; None takes the stored one. Spans keep
                the stored threshold for characters.
            context: The old name of `knowledge`.
            answer: The old name of `response`.
            question: The old name of a history of one turn.

        Raises:
            UserError: Lists of different lengths, something that is no text, or an empty text.
        """
        single, requests = read_question(
            knowledge, response, history, context=context, answer=answer, question=question
        )
        tagged = self.tag(requests, threshold=threshold)
        return tagged[0] if single else tagged

    def stream(
        self,
        knowledge: Iterable[Knowledge],
        response: Iterable[str],
        history: Iterable[History] | None = None,
        *,
        threshold: float | None = None,
        progress: bool = True,
    ) -> Iterator[Tagged]:
        """Results for any number of responses, one by one: what `predict` gives, without holding them all.

        It reads about a thousand items at a time, so the iterables may be generators of any length.

        Args:
            progress: Shows a bar.
        """
        total = len(response) if isinstance(response, Sized) else None
        requests = stream_requests(knowledge, response, history, number_passages)
        with tqdm(total=total, desc="tagging", disable=not progress, unit="response") as bar:
            while chunk := list(islice(requests, CHUNK)):
                yield from self.tag(chunk, threshold=threshold)
                bar.update(len(chunk))

    def predict_dialogue(self, context: Knowledge, turns: Sequence[tuple[str, str]]) -> list[Tagged | None]:
        """Tags every turn of the assistant, each with the turns before it; None for the turns of others.

        Args:
            context: The knowledge of the dialogue.
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
            yield from self.predict_columns(chunk, self._encode([request_of(example) for example in chunk]))

    def predict_columns(self, examples: Sequence[Example], columns: Mapping[str, Any]) -> Iterator[Prediction]:
        """Predictions of examples that are tokens already: columns of `SpanEncoder`."""
        requests = [request_of(example) for example in examples]
        for example, tagged in zip(examples, self._tag_columns(requests, columns, None), strict=True):
            spans = tuple(Span(start=s.start, end=s.end, label=s.label, score=s.score) for s in tagged.spans)
            yield Prediction(id=example.id, label=tagged.label, score=tagged.score, spans=spans)

    def tag(self, requests: Sequence[Request], *, threshold: float | None = None) -> list[Tagged]:
        """Label, score and spans of each response."""
        wanted = read_threshold(threshold)
        chunks = [requests[begin : begin + CHUNK] for begin in range(0, len(requests), CHUNK)]
        return [tagged for chunk in chunks for tagged in self._tag_columns(chunk, self._encode(chunk), wanted)]

    def answers(self, examples: Sequence[Example], columns: Sequence[Mapping[str, Any]] = ()) -> Answers:
        """The tokens of the responses with their log-odds and evidence: what a calibration is fitted on.

        Args:
            columns: The examples' tokens, a chunk behind the other, where they are cached.
        """
        requests = [request_of(example) for example in examples]
        columns = columns or self._encode_chunks(requests)
        if not requests:
            none = np.zeros(0, np.int64)
            return Answers(none, none, np.zeros(0), none, words_of(none, none, none, []))
        odds = np.concatenate([exact_log_odds(self._logits(chunk)) for chunk in columns])
        start, end = (stack_rows([chunk[side] for chunk in columns]) for side in ("start", "end"))
        owner = np.repeat(np.arange(len(requests)), start.lengths)
        starts, ends = start.values.astype(np.int64), end.values.astype(np.int64)
        return Answers(starts, ends, odds, owner, words_of(starts, ends, owner, requests))

    def odds(self, requests: Sequence[Request]) -> tuple[NDArray[np.float64], Ragged, Ragged]:
        """Log-odds of hallucinated of every response token, not calibrated, and where the tokens begin and end."""
        chunks = self._encode_chunks(requests)
        odds = np.concatenate([exact_log_odds(self._logits(columns)) for columns in chunks])
        start, end = (stack_rows([columns[side] for columns in chunks]) for side in ("start", "end"))
        return odds, start, end

    def _encode_chunks(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        return [self._encode(requests[begin : begin + CHUNK]) for begin in range(0, len(requests), CHUNK)]

    def _encode(self, requests: Sequence[Request]) -> dict[str, Any]:
        return self.encoder.encode_texts(
            [r.question for r in requests], [r.knowledge for r in requests], [r.response for r in requests]
        )

    def _tag_columns(
        self, requests: Sequence[Request], columns: Mapping[str, Any], threshold: float | None
    ) -> list[Tagged]:
        logits = self._logits(columns)
        odds = exact_log_odds(logits)
        owner = np.repeat(np.arange(len(requests)), columns["start"].lengths)
        starts, ends = (columns[side].values.astype(np.int64) for side in ("start", "end"))
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
                    text=requests[place].response[begin:stop],
                    label=self._label(logits[own]),
                    score=float(np.average(probability[own], weights=size[own])),
                )
            )
        evidence = response_evidence(odds, probability, size, owner, words, len(requests))
        scores = self.calibration.response_scores(evidence)
        return [
            Tagged(label=self.calibration.label(float(score), threshold), score=float(score), spans=own)
            for score, own in zip(scores, spans, strict=True)
        ]

    def _label(self, logits: NDArray[np.float32]) -> str:
        """The type with most probability over the span's tokens."""
        if logits.shape[1] == 2:
            return UNTYPED
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return str(self.model.config.id2label[1 + int(shares[:, 1:].sum(0).argmax())])

    def _logits(self, columns: Mapping[str, Any]) -> NDArray[np.float32]:
        """For every response token the logits of its best window [tokens, classes]; NaN where it stands in none."""
        num_tokens = len(columns["start"].values)
        best = np.full((num_tokens, self.model.config.num_labels), np.nan, np.float32)
        least = np.full(num_tokens, np.inf)
        windows = self.encoder.windows(columns)
        for rows in plan_batches(windows.lengths.astype(np.int32), None, self.batch_tokens, None):
            batch = self.encoder.collate_windows(columns, windows.take(np.sort(rows)))
            logits = self._run(batch)
            keep_best(best, least, batch["token"], exact_log_odds(logits), logits)
        return best

    @torch.inference_mode()
    def _run(self, batch: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        inputs = {name: torch.from_numpy(array).to(self.device) for name, array in batch.items()}
        if self.encoder.packed and reads_answers(self.model):
            logits = answer_logits(self.model, inputs)
        else:
            logits = run_model(self.model, inputs).logits.flatten(0, 1)[answer_places(inputs)]
        return logits.float().cpu().numpy()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device


def keep_best(
    best: NDArray[np.float32],
    least: NDArray[np.float64],
    token: NDArray[np.int64],
    odds: NDArray[np.float64],
    logits: NDArray[np.float32],
) -> None:
    """Takes the logits of a batch's windows wherever one supports a token better than all windows before it.

    Args:
        best: Logits of each token's best window so far [tokens, classes]; written to.
        least: Their log-odds of hallucinated [tokens]; written to.
        token: Which token stands at each place of the batch [places]; one may stand at several.
        odds: Log-odds of hallucinated at each place [places].
        logits: [places, classes].
    """
    # Places in the order of their tokens, those of one token in the order of their odds.
    order = np.lexsort((odds, token))
    # The first place of each token [tokens of the batch]: its best in this batch.
    first = order[np.flatnonzero(np.diff(token[order], prepend=-1))]
    better = first[odds[first] < least[token[first]]]
    least[token[better]] = odds[better]
    best[token[better]] = logits[better]


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
    """Knowledge of different lengths with responses, always the same: int8 measures its ranges on them."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 8 * count))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(count)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]
