"""Defines the detector `default`: it needs no training, and returns a label, a probability and marked spans that agree.

from faithkit import check
check("The warranty lasts 24 months.", "It lasts 36 months.").spans

The encoder is minilm as published. The fitted part is `default.json` beside this file: its weights, its thresholds,
what it was fitted on, and its figures on rows that it was not fitted on (`faithkit models default`).

A marked span is shown with the sentence of the context that it is compared with, and the reason why it is marked.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from critic.runtime import (
    SINGLE,
    Request,
    answer_call,
    apply_precision,
    calibration_requests,
    check_precision,
    judge_examples,
)
from critic.support.alignment import ALIGNED, Alignment, Floats, best_fit
from critic.support.arithmetic import first_number
from critic.support.normal_forms import (
    DATE,
    MODAL,
    NEGATION,
    NUMBER,
    QUANTIFIER,
    SENTENCE_END,
    UNIT,
    WORD,
    opposites,
)
from critic.support.normal_forms import (
    NAME as NAME_KIND,
)
from critic.support.word_model import VALUE, WordModel, find_spans
from critic.support.word_states import WEIGHTS, ContextCache, WordEncoder, encode_and_align, load_bert
from critic.weights import check_weights
from faithkit import arguments
from faithkit.calibration import logit, sigmoid
from faithkit.files.atomic import hash_file
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import CHECKPOINT, TRAINED, SeenRows, UsedModel
from faithkit.records import (
    FAITHFUL,
    HALLUCINATED,
    RELATIONS,
    UNTYPED,
    Evidence,
    Example,
    Prediction,
    Span,
    SpanType,
    join_passages,
    span_type,
)
from faithkit.weights.resolve import loading

NAME = "default"
FILE = Path(__file__).with_name("default.json")
RESPONSES_AT_ONCE = 128  # responses that are encoded together
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 512, 32_768
CONTRADICTION, ADDITION, _ = RELATIONS
LABEL_SET = "default"


class SupportDetector:
    """Compares a response with its context word by word (`critic.support.alignment`).

    Args:
        encoder: The encoder of the texts.
        model: The fitted model.
    """

    def __init__(self, encoder: WordEncoder, model: WordModel, *, name: str = NAME):
        self.encoder, self.model, self.name = encoder, model, name

    @classmethod
    def load(
        cls,
        path: str = "",
        *,
        device: str | None = None,
        precision: str = "32-true",
        batch_tokens: int | None = None,
    ) -> "SupportDetector":
        """Loads the detector.

        Args:
            path: A file of `python -m faithkit_workflows.fit_support`; empty for the detector that comes with faithkit.
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            precision: 32-true, bf16, int8 (CPU), or auto.

        Raises:
            UserError: The file or the encoder is not the original one.
        """
        check_precision(precision)
        device, batch_tokens = arguments.read_device(device), arguments.read_count("batch_tokens", batch_tokens)
        model = WordModel.read(Path(path).expanduser() if path else FILE)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        encoder = load_encoder(model.encoder, device, batch_tokens, sha256=model.encoder_sha256)
        detector = cls(encoder, model, name=f"{NAME}:{path}" if path else NAME)
        encoder.model = apply_precision(
            encoder.model, precision, device, lambda: detector.check(calibration_requests())
        )
        encoder.cache = ContextCache()
        return detector

    @classmethod
    def describe(cls, path: str, role: str = CHECKPOINT) -> UsedModel:
        """Describes the detector for the record of where predictions come from."""
        model = WordModel.read(Path(path).expanduser() if path else FILE)
        fitted = [str(part.get("name")) for part in model.description.get("fitted_on", ())]

        return UsedModel(
            role=role,
            path=f"{NAME}:{path}" if path else NAME,
            kind=NAME,
            weights=model.encoder_sha256[:32],
            threshold=f"{model.threshold:.4g}, {model.description.get('threshold', 'as fitted')}",
            find_seen=lambda: find_seen(fitted),
        )

    @property
    def unsure_from(self) -> float:
        """The probability from which the verdict is unsure, up to the threshold."""
        return float(self.model.unsure_from)

    @property
    def rates(self) -> dict[str, Any] | None:
        """Recall and false alarms of the threshold on rows left out of the fit; None for another threshold."""
        aims = self.model.aims.values()
        return next((aim for aim in aims if abs(aim["threshold"] - self.model.threshold) < 1e-9), None)

    def set_aim(self, aim: str) -> None:
        """Sets the threshold to that of an aim: balanced, recall or precision."""
        arguments.read_choice("aim", aim, tuple(self.model.aims))
        self.set_threshold(self.model.aims[aim]["threshold"])

    @property
    def threshold(self) -> float:
        """The probability from which a response is labelled hallucinated."""
        return float(self.model.threshold)

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated."""
        self.model = self.model.with_threshold(threshold)

    def __repr__(self) -> str:
        return f"SupportDetector({self.name!r}, threshold={self.model.threshold:.4g}, device={str(self.device)!r})"

    @arguments.explain_keywords
    def predict(
        self, knowledge: Any, response: Any, history: Any = None, *, threshold: float | None = None
    ) -> Prediction | list[Prediction]:
        """Checks one response, or a list of responses.

        Args:
            knowledge: A text, or a list of passages; for a list of responses a list of these.
            response: A text, or a list of texts.
            history: The question, or the turns before the response; for a list of responses a list of these.
            threshold: Probability from which a response is labelled hallucinated; None takes the stored threshold.

        Raises:
            UserError: Lists have different lengths, or a text is empty or no text.
        """
        threshold = arguments.read_probability("threshold", threshold)
        return answer_call(partial(self.check, threshold=threshold), knowledge, response, history, join_passages)

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        yield from judge_examples(
            self.check, examples, chunk_size=RESPONSES_AT_ONCE, description="checking", progress=progress
        )

    def check(self, requests: Sequence[Request], *, threshold: float | None = None) -> list[Prediction]:
        """Computes label, probability and spans of each response; a faithful one has no span."""
        threshold = self.model.threshold if threshold is None else threshold
        results = []
        for begin in range(0, len(requests), RESPONSES_AT_ONCE):
            chunk = requests[begin : begin + RESPONSES_AT_ONCE]
            # Values of the question are not judged, so earlier turns of the assistant must not be a part of it.
            texts = [(r.knowledge or "", r.question if r.asked is None else r.asked, r.response) for r in chunk]
            aligned = encode_and_align(self.encoder, texts)
            for request, alignment, (odds, logits) in zip(chunk, aligned, self._weigh(texts, aligned), strict=True):
                places = alignment.places
                score = float(sigmoid(odds)) if places else 0.0
                if places and alignment.features[:, VALUE].any():
                    score = max(score, self.model.value_probability)
                is_hallucinated = bool(places) and score >= threshold
                spans = self._mark(request.response, alignment, logits) if is_hallucinated else ()
                label = HALLUCINATED if is_hallucinated else FAITHFUL
                results.append(Prediction(id=SINGLE, label=label, score=score, spans=spans))
        return results

    def _weigh(self, texts: Sequence[tuple[str, str, str]], aligned: Sequence[Alignment]) -> list[tuple[float, Floats]]:
        """Computes the log-odds of each response, and those of its words."""
        words = [self.model.word_logits(alignment.features) for alignment in aligned]
        return [
            (self.model.response_logit(logits, alignment.features), logits)
            for logits, alignment in zip(words, aligned, strict=True)
        ]

    def _mark(self, response: str, alignment: Alignment, logits: Floats) -> tuple[Span, ...]:
        """Marks values that the context does not have, and in other sentences the words above the span threshold."""
        words, places = alignment.words, alignment.places
        pairs = [pair for pair in alignment.pairs if pair.is_unsupported]
        inside: dict[int, list[int]] = {}  # by the first character of an unsupported value
        for number, place in enumerate(places):
            if (pair := alignment.pair_of.get(place)) is not None and pair.is_unsupported:
                inside.setdefault(pair.value.start, []).append(number)
        sentences = {words[place].sentence for place, pair in alignment.pair_of.items() if pair.is_unsupported}
        rest = [n for n, place in enumerate(places) if words[place].sentence not in sentences]
        found: list[tuple[int, int, float]] = []
        for pair in pairs:
            numbers = inside.get(pair.value.start)
            probability = float(sigmoid(logits[numbers].max())) if numbers else 0.0
            found.append((pair.value.start, pair.value.end, max(probability, self.model.value_probability)))
        if rest:
            cut = float(logit(self.model.span_threshold))
            cut = cut if pairs else min(cut, float(logits.max()))
            chosen = [places[n] for n in rest]
            gaps = [place - before - 1 for before, place in zip([-9, *chosen], chosen, strict=False)]
            characters = [(words[place].start, words[place].end) for place in chosen]
            found += find_spans(characters, [words[place].sentence for place in chosen], gaps, logits[rest], cut)
        spans = []
        for start, end, score in sorted(found):
            evidence, type_ = find_evidence(alignment, start, end, logits)
            text = response[start:end]
            spans.append(Span(start=start, end=end, text=text, label=UNTYPED, score=score, evidence=evidence, **type_))
        return tuple(spans)

    @property
    def device(self) -> torch.device:
        """The encoder's device."""
        return self.encoder.model.device


def find_seen(fitted: Sequence[str]) -> SeenRows:
    """Finds the rows that a detector was fitted on: those of the everyday answers; of other sets only the names."""
    from data_modules.datasets.everyday import FOLDER, Everyday
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    authors = [name for name in fitted if (FOLDER / f"{name}.jsonl").is_file()]
    rows = (read_examples(Everyday(path=str(FOLDER / f"{name}.jsonl")), None, ReadReport()) for name in authors)
    return SeenRows.of({TRAINED: map(row_keys, rows)}, [name for name in fitted if name not in authors])


def load_encoder(name: str, device: str, batch_tokens: int | None = None, *, sha256: str | None = None) -> WordEncoder:
    """Loads an encoder, and checks that its weights have the expected hash.

    Raises:
        UserError: They have another hash.
    """
    batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if device == "cpu" else GPU_BATCH_TOKENS)
    with loading(name) as source:
        if sha256:
            check_weights(name, source, sha256, hash_weights(source))
        model, tokenizer = load_bert(Path(source))
        return WordEncoder(model.to(device), tokenizer, batch_tokens=batch_tokens)


def hash_weights(folder: str) -> str:
    """Hashes the weights in a folder."""
    return hash_file(Path(folder) / WEIGHTS)


def find_evidence(alignment: Alignment, start: int, end: int, logits: Floats) -> tuple[Evidence, SpanType]:
    """Finds the sentence of the context that a span is compared with, the reason why it is marked, and its type.

    Args:
        start: First character of the span in the response.
        end: After its last character.
        logits: How unsupported each word of the alignment is; the worst one decides where no value is wrong.
    """
    words = alignment.words
    in_span = {place: None for place, word in enumerate(words) if word.start < end and start < word.end}
    inside = [n for n, place in enumerate(alignment.places) if place in in_span]
    places = [alignment.places[n] for n in inside] or list(in_span)  # the identifier is_on has stop words alone
    for pair in map(alignment.pair_of.get, places):
        if pair is not None and pair.is_unsupported:
            value, closest = pair.value, pair.closest
            is_same_number = closest is not None and first_number(closest.text) == first_number(value.text) is not None
            kind = UNIT if value.is_unit or (is_same_number and value.unit) else value.kind
            # The relation is unknown if the closest value may be of something else.
            relation = ADDITION if closest is None else CONTRADICTION if pair.shares_head else None
            type_: SpanType = {"relation": relation, "element": span_type(LABEL_SET, kind)["element"]}
            if closest is None:
                first = alignment.matches[words[places[0]].sentence].first
                return _quote(alignment, "not in the context", first), type_
            says = "the context says" if pair.shares_head else "not in the context, which says"
            start, end = sentence_at(alignment.knowledge, closest.start)
            reason = f"{says} {closest.text}"
            return Evidence(text=alignment.knowledge[start:end], start=start, end=end, reason=reason), type_
    reason, first, type_ = _explain(alignment, places[int(np.argmax(logits[inside]))])
    return _quote(alignment, reason, first), type_


def _quote(alignment: Alignment, reason: str, first: int) -> Evidence:
    """Makes evidence of the sentence of the context that a word is in."""
    words, knowledge = alignment.context.words, alignment.knowledge
    last, number = first, words[first].sentence
    while last + 1 < len(words) and words[last + 1].sentence == number:
        last += 1
    while first and words[first - 1].sentence == number:
        first -= 1
    # Which of the parts the words are in is not kept, but a sentence is in the knowledge as it is.
    for part in alignment.parts:
        found = knowledge.find(part[words[first].start : words[last].end]) if words[last].end <= len(part) else -1
        word = part[words[first].start : words[first].end].lower().replace("’", "'")
        if found >= 0 and words[first].lower in word:
            start, end = sentence_at(knowledge, found)
            return Evidence(text=knowledge[start:end], start=start, end=end, reason=reason)
    return Evidence(reason=reason)


def _explain(alignment: Alignment, place: int) -> tuple[str, int, SpanType]:
    """Says why a word may be unsupported: the reason, a word of the sentence that it refers to, and the type."""
    word, match = alignment.words[place], alignment.matches[alignment.words[place].sentence]
    context, here = alignment.context.words, alignment.response.negated[place]
    matched = range(match.first, match.end)
    counterpart = match.first + int(alignment.closeness[place, match.first : match.end].argmax())
    element = span_type(LABEL_SET, word.kind)["element"]
    conflict: SpanType = {"relation": CONTRADICTION, "element": element}
    negated: SpanType = {"relation": CONTRADICTION, "element": "negation"}
    is_aligned = float(alignment.closeness[place, counterpart]) > ALIGNED
    there = alignment.context.negated[counterpart]
    if word.kind == NEGATION or (is_aligned and here and not there):
        is_negated = bool(match.norms[NEGATION])
        reason = "negated otherwise in the context" if is_negated else "negated in the answer only"
        return reason, match.first, negated
    if is_aligned and there and not here:
        return "negated in the context", match.first, negated
    if word.kind in (WORD, NAME_KIND):
        opposite = opposites(word.norm)
        found = next((context[n].lower for n in matched if context[n].norm in opposite), None)
        if found:
            return f'the context says "{found}"', match.first, conflict
    if word.kind in (QUANTIFIER, MODAL) and match.norms[word.kind] and word.norm not in match.norms[word.kind]:
        found = next(context[n].lower for n in matched if context[n].kind == word.kind)
        return f'the context says "{found}"', match.first, conflict
    if not bool(alignment.equal[place].any()):
        return "not in the context", match.first, {"relation": ADDITION, "element": element}
    others = [other for other in match.content if other != place]
    is_value = word.kind in (NAME_KIND, NUMBER, DATE) and bool(others or alignment.asked)
    same, rivals = alignment.find_rivals(place, match) if is_value else ([], [])
    if rivals and same:
        fit = alignment.fit(place, others)
        best = max(rivals, key=lambda rival: float(fit[rival]))
        if float(fit[best]) > best_fit(fit, same):
            name = context[best]
            shown = name.lower.title() if name.kind in (NAME_KIND, DATE) else name.lower
            return f"in the context, but {shown} is closer to what the answer says", best, conflict
    return "does not fit the closest sentence of the context", match.first, {"relation": None, "element": element}


def sentence_at(text: str, position: int) -> tuple[int, int]:
    """Finds the sentence around a character: its first character and the one after its last."""
    start, end = 0, len(text)
    for found in SENTENCE_END.finditer(text):
        if found.end() > position:
            end = found.start()
            break
        start = found.end()
    while start < end and text[start].isspace():
        start += 1
    return start, end if end > start else start
