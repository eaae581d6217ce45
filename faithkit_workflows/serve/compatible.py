"""Routes of other services, so that their clients need another address only: LettuceDetect, vLLM and OpenAI.

Their forms are those of `lettucedetect_api` 0.2, of vLLM's /classify and /score, and of OpenAI's chat completions. Keys
that they know and this service does not need are ignored. Scores are P(hallucinated).
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from fastapi import Body, FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import AliasChoices, BaseModel, Discriminator, Field, Tag

from faithkit.records import HALLUCINATED, LABELS
from faithkit_workflows.serve.schemas import (
    MANY,
    ONE,
    CheckResult,
    DialogueTurn,
    JsonRequest,
    Passage,
    Probability,
    Problem,
    Row,
    String,
    Text,
)
from faithkit_workflows.serve.service import Service

Score = Annotated[float, Field(ge=0, le=1)]
MAX_TEXTS = 1000


def one_or_many(item: Any, max_items: int) -> Any:
    """Makes the type of one item, or of a list of at most so many; errors are those of what was meant."""
    many = Annotated[list[item], Field(min_length=1, max_length=max_items, fail_fast=True)]
    return Annotated[
        Annotated[item, Tag(ONE)] | Annotated[many, Tag(MANY)],
        Discriminator(lambda value: MANY if isinstance(value, list) else ONE),
    ]


class LettuceRequest(JsonRequest):
    """LettuceDetect's request."""

    contexts: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
    question: String
    answer: Text


class LettuceSpan(BaseModel):
    """A part that the contexts do not support."""

    start: int
    end: int
    text: str
    hallucination_score: Score


class LettuceSpans(BaseModel):
    """LettuceDetect's reply for spans."""

    predictions: list[LettuceSpan]


class LettuceToken(BaseModel):
    """A word with the score of the span that covers it; 0 outside of spans."""

    token: str
    hallucination_score: Score


class LettuceTokens(BaseModel):
    """LettuceDetect's reply for tokens; tokens are words and the white space before them, and join to the answer."""

    predictions: list[LettuceToken]


class PairScore(BaseModel):
    """The score of a pair."""

    index: int
    object: Literal["score"] = "score"
    score: Score


class Usage(BaseModel):
    """Tokens are not counted here."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int = 0


class ScoreReply(BaseModel):
    """vLLM's reply for scores."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[PairScore]
    usage: Usage = Usage()


class Pair(JsonRequest):
    """A pair to classify."""

    text: Text
    text_pair: Text


class PairClass(BaseModel):
    """The class of a pair."""

    index: int
    label: str
    probs: list[Probability] = Field(description=f"In the order {', '.join(LABELS)}.")
    num_classes: Literal[2] = 2


class ClassifyReply(BaseModel):
    """vLLM's reply for classes."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[PairClass]
    usage: Usage = Usage()


class ChatPart(JsonRequest):
    """A part of a message."""

    type: Literal["text"]
    text: String


class ChatMessage(JsonRequest):
    """A message: system and tool messages are the knowledge, the last assistant message is checked."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: String | Annotated[list[ChatPart], Field(max_length=MAX_TEXTS, fail_fast=True)] | None = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(JsonRequest):
    """OpenAI's request for a chat completion."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
    model: String | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None


class ChatReplyMessage(BaseModel):
    """The verdict as JSON."""

    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    """The only choice."""

    index: int = 0
    message: ChatReplyMessage
    finish_reason: Literal["stop"] = "stop"


class ChatReply(BaseModel):
    """OpenAI's reply."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage = Usage()


def add_routes(app: FastAPI, service: Service, refusals: dict[int | str, dict[str, Any]]) -> None:
    """Adds the routes."""
    max_rows = service.settings.max_rows

    class ScoreRequest(JsonRequest):
        """vLLM's request for the score of pairs: knowledge, response."""

        text_1: one_or_many(Text, max_rows) = Field(  # type: ignore[valid-type]
            validation_alias=AliasChoices("text_1", "queries"), description="The knowledge: one, or as many as text_2."
        )
        text_2: one_or_many(Text, max_rows) = Field(  # type: ignore[valid-type]
            validation_alias=AliasChoices("text_2", "documents"), description="The responses."
        )
        model: String | None = None

    class ClassifyRequest(JsonRequest):
        """Pairs to classify: one, or several."""

        input: one_or_many(Pair, max_rows)  # type: ignore[valid-type]
        model: String | None = None

    async def mark(request: Request, body: LettuceRequest) -> list[LettuceSpan]:
        """Marks spans; a model without spans marks the whole answer that it calls hallucinated."""
        row = Row(knowledge=list(body.contexts), response=body.answer, question=body.question)
        _, (verdict,) = await service.check([row], None, request.scope["state"], field="")
        if verdict.label == HALLUCINATED and not verdict.spans:
            score = _score(verdict)
            return [LettuceSpan(start=0, end=len(body.answer), text=body.answer, hallucination_score=score)]
        return [
            LettuceSpan(
                start=one.start,
                end=one.end,
                text=one.text,
                hallucination_score=_score(verdict) if one.probability is None else one.probability,
            )
            for one in verdict.spans
        ]

    @app.post("/v1/lettucedetect/spans", summary="As LettuceDetect's server: spans", responses=refusals)
    async def lettuce_spans(request: Request, body: Annotated[LettuceRequest, Body()]) -> LettuceSpans:
        return LettuceSpans(predictions=await mark(request, body))

    @app.post("/v1/lettucedetect/token", summary="As LettuceDetect's server: tokens", responses=refusals)
    async def lettuce_tokens(request: Request, body: Annotated[LettuceRequest, Body()]) -> LettuceTokens:
        spans, tokens = await mark(request, body), []
        for found in re.finditer(r"\s*\S+|\s+$", body.answer):
            inside = [one.hallucination_score for one in spans if one.start < found.end() and found.start() < one.end]
            tokens.append(LettuceToken(token=found.group(), hallucination_score=max(inside, default=0.0)))
        return LettuceTokens(predictions=tokens)

    @app.post("/score", summary="As vLLM: scores of pairs, without a version", responses=refusals)
    @app.post("/v1/score", summary="As vLLM: scores of pairs", responses=refusals)
    async def score(request: Request, body: Annotated[ScoreRequest, Body()]) -> ScoreReply:
        state, sent = request.scope["state"], cast(Any, body)
        first = [sent.text_1] if isinstance(sent.text_1, str) else sent.text_1
        second = [sent.text_2] if isinstance(sent.text_2, str) else sent.text_2
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            message = f"text_1 has {len(first)} texts and text_2 has {len(second)}"
            raise Problem("invalid_request", message, "send equally many, or one text_1", field="text_2")
        rows = [Row(knowledge=knowledge, response=response) for knowledge, response in zip(first, second, strict=True)]
        name, verdicts = await service.check(rows, sent.model, state, field="text_2")
        scores = [PairScore(index=place, score=_score(one)) for place, one in enumerate(verdicts)]
        return ScoreReply(id=f"score-{state['request_id']}", created=int(time.time()), model=name, data=scores)

    @app.post("/classify", summary="As vLLM: classes of pairs", responses=refusals)
    async def classify(request: Request, body: Annotated[ClassifyRequest, Body()]) -> ClassifyReply:
        state, sent = request.scope["state"], cast(Any, body)
        pairs = sent.input if isinstance(sent.input, list) else [sent.input]
        rows = [Row(knowledge=pair.text, response=pair.text_pair) for pair in pairs]
        name, verdicts = await service.check(rows, sent.model, state, field="input")
        data = [
            PairClass(index=place, label=one.label, probs=[1 - _score(one), _score(one)])
            for place, one in enumerate(verdicts)
        ]
        return ClassifyReply(id=f"classify-{state['request_id']}", created=int(time.time()), model=name, data=data)

    @app.post(
        "/v1/chat/completions",
        summary="As OpenAI: the verdict on the last assistant message, as JSON",
        response_model=ChatReply,
        responses=refusals,
    )
    async def complete(request: Request, body: Annotated[ChatRequest, Body()]) -> Any:
        # System and tool messages are the passages, other messages the history.
        state, messages, last = request.scope["state"], body.messages, body.messages[-1]
        if last.role != "assistant" or not last.text.strip():
            help_, place = "end with an assistant message: the answer to check", f"messages.{len(messages) - 1}"
            raise Problem("invalid_request", "the last message is no answer", help_, field=place)
        sources = [one for one in messages if one.role in ("system", "developer", "tool") and one.text.strip()]
        if not sources:
            help_ = "send the context as system or tool messages"
            raise Problem("invalid_request", "no message has the context", help_, field="messages")
        turns = [one for one in messages[:-1] if one.role in ("user", "assistant") and one.text.strip()]
        row = Row(
            knowledge=[Passage(text=one.text) for one in sources],
            response=last.text,
            history=[DialogueTurn(speaker=one.role, text=one.text) for one in turns] or None,
        )
        name, (verdict,) = await service.check([row], body.model, state, field="")
        about: dict[str, Any] = {"id": f"chatcmpl-{state['request_id']}", "created": int(time.time()), "model": name}
        content = verdict.model_dump_json()
        if body.stream:
            with_usage = bool((body.stream_options or {}).get("include_usage"))
            return StreamingResponse(_chunks(about, content, with_usage), media_type="text/event-stream")
        return ChatReply(**about, choices=[ChatChoice(message=ChatReplyMessage(content=content))])


def _score(verdict: CheckResult) -> float:
    if verdict.probability is not None:
        return verdict.probability
    return float(verdict.label == HALLUCINATED)


def _chunks(about: dict[str, Any], content: str, with_usage: bool) -> Iterator[str]:
    """Writes a reply as a stream of one piece."""
    head = {"id": about["id"], "object": "chat.completion.chunk"} | about
    for delta, reason in (({"role": "assistant", "content": content}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    if with_usage:
        yield f"data: {json.dumps(head | {'choices': [], 'usage': Usage().model_dump()})}\n\n"
    yield "data: [DONE]\n\n"
