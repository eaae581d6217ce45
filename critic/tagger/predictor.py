"""Defines the public class `Tagger`: texts to tokens, logits (`windows`), labels and spans."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray

from critic.runtime import (
    ONNX,
    SINGLE,
    TURN_BREAK,
    History,
    Knowledge,
    Request,
    answer_call,
    apply_precision,
    calibration_requests,
    check_precision,
    judge_examples,
    load_checkpoint,
    stream_results,
)
from critic.tagger.span_calibration import Answers, Settings, SpanCalibration, tagger_labels
from critic.tagger.windows import exact_log_odds, token_logits
from critic.token_support import CENTER, SCALE, TokenSupport
from data_modules.encoding.encoder import stack_rows
from data_modules.encoding.span_encoder import SpanEncoder
from faithkit import arguments
from faithkit.arguments import ManyResponses, OneResponse
from faithkit.detector import TAGGER
from faithkit.errors import UserError
from faithkit.fast import ANSWERS, accelerate, is_packed
from faithkit.files.model_folder import SIDECAR
from faithkit.languages import ENGLISH
from faithkit.records import (
    FAITHFUL,
    HALLUCINATED,
    RAGTRUTH,
    UNTYPED,
    Example,
    Prediction,
    Span,
    number_passages,
    span_type,
)

log = logging.getLogger("faithkit")
RESPONSES_AT_ONCE = 1024  # responses that are tokenised and sorted together
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32_768


class Thresholds(TypedDict, total=False):
    """The probabilities that decide labels and spans; see `Tagger.predict`."""

    threshold: float | None
    span_threshold: float | None


class Tagger:
    """A trained tagger: marks the characters of a response that its knowledge does not support.

        from faithkit import Tagger
        tagger = Tagger.load("runs/...")
        tagger.predict(knowledge="...", response="...", history=["Who built it?"]).spans

    `predict` takes one response or a list, `stream` any number of responses, `predict_dialogue` the turns of a
    dialogue, `predict_examples` records of a dataset. Texts may have any length. The result for a response does not
    depend on its batch: probabilities agree up to float rounding (1e-6 in fp32), and so do label and spans, unless a
    probability is that close to a threshold.

    Args:
        model: A token classifier of transformers: outside first, then hallucinated or its types.
        calibration: Converts log-odds to probabilities, spans and labels.
        token_support: Computes the tokens' log-odds from their support in the knowledge (`critic.token_support`).
        batch_tokens: Tokens of a batch; changes the speed, not the result. None chooses by the device.
        name: The model's name in `repr`; None takes its class.

    Attributes:
        languages: Those that it reads (`faithkit.languages`).
    """

    def __init__(
        self,
        model: Any,
        encoder: SpanEncoder,
        calibration: SpanCalibration,
        *,
        token_support: bool = False,
        batch_tokens: int | None = None,
        name: str | None = None,
    ):
        self.model, self.encoder, self.calibration = model, encoder, calibration
        self.token_support = token_support
        self.languages: tuple[str, ...] = (ENGLISH,)
        self.name = name or type(model).__name__
        checked = arguments.read_count("batch_tokens", batch_tokens)
        self.batch_tokens = checked or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)

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
    ) -> "Tagger":
        """Loads a tagger from a run, an hf/ folder or a hub name.

        Args:
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            precision: 32-true, bf16, int8 (CPU), onnx (the graph of `export.py format=onnx`), or auto: the fastest
                of these on the hardware.
            max_windows: Number of windows of long knowledge that are read for each part of the response: those that
                share most words with it. None reads as many as in training, "all" reads all (docs/guides/scoring.md).

        Raises:
            UserError: There is no model, or it is of another kind.
        """
        path, device = arguments.read_path(path), arguments.read_device(device)
        check_precision(precision)
        batch_tokens = arguments.read_count("batch_tokens", batch_tokens)
        max_windows = arguments.read_windows(max_windows)
        onnx, auto = precision == ONNX, "AutoModelForTokenClassification"
        loaded = load_checkpoint(path, auto, TAGGER, Settings.from_sidecar, device, onnx=onnx)
        settings, config = loaded.settings, loaded.model.config
        if settings is None:
            names = tuple(config.id2label.values())
            if len(names) not in (len(tagger_labels(False)), len(tagger_labels(True))):
                hint = "give a model with the labels outside and hallucinated, in this order"
                problem = f"not a span tagger: its labels are {', '.join(map(str, names))}"
                raise UserError(problem, place=path, hint=hint)
            log.warning("%s has no %s: its probabilities are uncalibrated and its thresholds are 0.5", path, SIDECAR)
            longest = min(4096, getattr(config, "max_position_embeddings", 512) - 2)
            settings = Settings(labels=names, max_length=longest, calibration=SpanCalibration(), origin={})
        if not onnx and not settings.token_support:
            accelerate(loaded.model, ANSWERS)
        encoder = SpanEncoder(
            tokenizer=loaded.tokenizer,
            max_length=settings.max_length,
            packed=is_packed(loaded.model),
            max_windows=arguments.choose_windows(max_windows, settings.max_windows),
        )
        tagger = cls(
            loaded.model,
            encoder,
            settings.calibration,
            token_support=settings.token_support,
            batch_tokens=batch_tokens,
            name=path,
        )
        tagger.languages = loaded.languages
        tagger.model = apply_precision(
            loaded.model, precision, loaded.device, lambda: tagger.answers(calibration_requests())
        )
        return tagger

    @property
    def threshold(self) -> float:
        """The probability from which a response is labelled hallucinated."""
        return float(self.calibration.response_threshold)

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated."""
        self.calibration = replace(self.calibration, response_threshold=threshold)

    def __repr__(self) -> str:
        threshold = self.calibration.response_threshold
        return f"Tagger({self.name!r}, threshold={threshold:.4g}, device={str(self.device)!r})"

    @overload
    def predict(
        self,
        knowledge: Knowledge,
        response: str,
        history: History = None,
        *,
        question: str | None = None,
        **thresholds: Unpack[Thresholds],
    ) -> Prediction: ...
    @overload
    def predict(
        self,
        knowledge: Sequence[Knowledge],
        response: list[str],
        history: Sequence[History] | None = None,
        *,
        question: Sequence[str | None] | None = None,
        **thresholds: Unpack[Thresholds],
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, *, threshold: float | None = None, span_threshold: float | None = None, **names: Unpack[OneResponse]
    ) -> Prediction: ...
    @overload
    def predict(
        self, *, threshold: float | None = None, span_threshold: float | None = None, **names: Unpack[ManyResponses]
    ) -> list[Prediction]: ...
    @arguments.explain_overloads
    def predict(
        self,
        knowledge: Any,
        response: Any,
        history: Any = None,
        *,
        threshold: float | None = None,
        span_threshold: float | None = None,
    ) -> Prediction | list[Prediction]:
        """Tags one response, or a list of responses.

        Args:
            knowledge: A text, or a list of passages, which are numbered as in RAGTruth ("passage 1:..."); for a list
                of responses a list of these. `context=` is another name, and `answer=` of `response`.
            response: A text, or a list of texts.
            history: The turns before the response, the oldest first: texts, `Turn`s, (speaker, text) pairs, or one text
                for the last turn; for a list of responses a list of these.
            threshold: Probability from which a response is labelled hallucinated; None takes the stored threshold.
                Spans match the label: a faithful response has none, a hallucinated response at least one.
            span_threshold: Probability from which characters are marked, regardless of the label.

        Raises:
            UserError: Lists have different lengths, or a text is empty or no text.
        """
        judge = partial(self.tag, threshold=threshold, span_threshold=span_threshold)
        return answer_call(judge, knowledge, response, history, number_passages)

    @arguments.explain_keywords
    def stream(
        self,
        knowledge: Iterable[Knowledge],
        response: Iterable[str],
        history: Iterable[History] | None = None,
        *,
        threshold: float | None = None,
        span_threshold: float | None = None,
        progress: bool = True,
    ) -> Iterator[Prediction]:
        """Yields the results for any number of responses, as `predict` computes them, without holding them all.

        It reads about a thousand items at a time, so the iterables may be generators of any length.

        Args:
            progress: Shows a progress bar.
        """
        yield from stream_results(
            partial(self.tag, threshold=threshold, span_threshold=span_threshold),
            knowledge,
            response,
            history,
            join=number_passages,
            chunk_size=RESPONSES_AT_ONCE,
            description="tagging",
            progress=progress,
        )

    @arguments.explain_keywords
    def predict_dialogue(self, knowledge: Knowledge, turns: Sequence[tuple[str, str]]) -> list[Prediction | None]:
        """Tags each turn of the assistant with the turns before it as history; returns None for other turns.

        Args:
            turns: (speaker, text): [("user", "Who wrote it?"), ("assistant", "It is anonymous.")].
        """
        passages, all_turns = arguments.read_passages("knowledge", knowledge), arguments.read_turns("turns", turns)
        places = [p for p, (speaker, _) in enumerate(all_turns) if (speaker or "").lower() in arguments.ASSISTANTS]
        if not places:
            speakers = ", ".join(sorted({speaker or "unnamed" for speaker, _ in all_turns})) or "none"
            problem = f"turns has no turn of the assistant; speakers: {speakers}"
            raise UserError(problem, hint='turns=[("user", "Where?"), ("assistant", "In twelve.")]')
        requests = []
        for place in places:
            question = TURN_BREAK.join(text for _, text in all_turns[:place])
            response = arguments.read_text("turns", all_turns[place][1], f"item {place}")
            requests.append(Request(number_passages(passages), question, response))
        result: list[Prediction | None] = [None] * len(all_turns)
        for place, tagged in zip(places, self.tag(requests), strict=True):
            result[place] = replace(tagged, id=str(place))
        return result

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        yield from judge_examples(
            self.tag, examples, chunk_size=RESPONSES_AT_ONCE, description="tagging", progress=progress
        )

    def tag(
        self,
        requests: Sequence[Request],
        columns: Iterable[Mapping[str, Any]] = (),
        *,
        threshold: float | None = None,
        span_threshold: float | None = None,
    ) -> list[Prediction]:
        """Computes label, score and spans of each response, with the thresholds of `predict`.

        Args:
            columns: The cached tokens of the requests, in chunks of `RESPONSES_AT_ONCE`.
        """
        threshold = arguments.read_probability("threshold", threshold)
        span_threshold = arguments.read_probability("span_threshold", span_threshold)
        calibration, results = self.calibration, []
        for chunk, logits, answers in self._read(requests, columns):
            probability = calibration.probabilities(answers)  # [tokens]
            scores = calibration.response_scores(answers, probability)  # [responses]
            is_hallucinated = calibration.is_hallucinated(scores, threshold)
            labels_to_match = is_hallucinated if span_threshold is None else None
            found = calibration.spans(answers, probability, labels_to_match, span_threshold)
            spans: list[list[Span]] = [[] for _ in chunk]
            for begin, stop, first, last in zip(found.start, found.end, found.first, found.last, strict=True):
                tokens = slice(first, last + 1)
                label = UNTYPED
                if logits.shape[1] > 2:  # the type with the highest probability, summed over the span's tokens
                    probabilities = np.exp(logits[tokens] - logits[tokens].max(1, keepdims=True))
                    probabilities /= probabilities.sum(1, keepdims=True)
                    label = str(self.model.config.id2label[1 + int(probabilities[:, 1:].sum(0).argmax())])
                response = int(answers.owner[first])
                spans[response].append(
                    Span(
                        start=int(begin),
                        end=int(stop),
                        text=chunk[response].response[begin:stop],
                        label=label,
                        **span_type(RAGTRUTH, label),  # the label set of every head with types
                        score=float(np.average(probability[tokens], weights=answers.characters[tokens])),
                    )
                )
            for score, hallucinated, of_response in zip(scores.tolist(), is_hallucinated, spans, strict=True):
                label = HALLUCINATED if hallucinated else FAITHFUL
                results.append(Prediction(id=SINGLE, label=label, score=score, spans=tuple(of_response)))
        return results

    def answers(self, requests: Sequence[Request], columns: Iterable[Mapping[str, Any]] = ()) -> Answers:
        """Computes uncalibrated log-odds and features of all response tokens, which a calibration is fitted on.

        Args:
            columns: The cached tokens of the requests, in chunks of `RESPONSES_AT_ONCE`.
        """
        return Answers.join([answers for _, _, answers in self._read(requests, columns)])

    def _read(
        self, requests: Sequence[Request], columns: Iterable[Mapping[str, Any]]
    ) -> Iterator[tuple[Sequence[Request], NDArray[np.float32], Answers]]:
        """Yields requests chunk by chunk, with the logits of their response tokens [tokens, classes] and features."""
        cached = iter(columns)
        for begin in range(0, max(1, len(requests)), RESPONSES_AT_ONCE):
            chunk = requests[begin : begin + RESPONSES_AT_ONCE]
            tokens: Mapping[str, Any] | None = next(cached, None)
            if tokens is None:
                texts = ([getattr(one, name) for one in chunk] for name in ("question", "knowledge", "response"))
                tokens = dict[str, Any](self.encoder.encode_texts(*texts))
            if self.token_support:
                support = TokenSupport(
                    self.model,
                    self.encoder.tokenizer,
                    batch_tokens=self.batch_tokens,
                    max_windows=self.encoder.max_windows,
                )
                sources = stack_rows([tokens["context"], tokens["question"]])
                found = support.supports(sources, stack_rows([tokens["answer"]] * 2))
                best = map(torch.maximum, found[: len(chunk)], found[len(chunk) :])  # of context and question
                values = torch.cat([*best, torch.zeros(0)]).numpy()
                odds = SCALE * (CENTER - values)
                logits = np.stack([np.zeros_like(values), odds], axis=1).astype(np.float32)
            else:
                logits = token_logits(self.model, self.encoder, tokens, self.batch_tokens)
            yield chunk, logits, Answers.of(chunk, exact_log_odds(logits), tokens["start"], tokens["end"])

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device
