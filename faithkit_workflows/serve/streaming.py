"""Verdicts as server-sent events: one for each sentence as soon as its text is complete, then one for the whole.

A response that is still being written comes as JSON lines to /v1/check/stream: first a request as for /v1/check, whose
response may be missing, then `{"response": "more text"}` for each further piece.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationError

from faithkit.words import sentence_places
from faithkit_workflows.serve.gate import streams_body
from faithkit_workflows.serve.problems import Problem
from faithkit_workflows.serve.schemas import CheckOne, OneReply, OwnRequest, Row
from faithkit_workflows.serve.service import Service

MEDIA_TYPE = "text/event-stream"
EVENT = {
    "type": "object",
    "properties": {"event": {"enum": ["sentence", "verdict", "error"]}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": EVENT}}}}
LINES = "application/x-ndjson"
DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {LINES: {"schema": {"type": "string", "description": "One JSON object a line."}}},
    }
}


class FirstLine(CheckOne):
    """The request whose response follows."""

    response: str = ""
    stream: bool = True


class NextLine(OwnRequest):
    """A further piece of the response."""

    response: str = Field(min_length=1)


async def one_piece(text: str) -> AsyncIterator[str]:
    """Yields a text that is complete."""
    yield text


async def open_stream(
    service: Service, row: Row, pieces: AsyncIterator[str], model: str | None, state: Mapping[str, Any]
) -> StreamingResponse:
    """Opens the stream; what is wrong before its first event has a status of its own."""
    events = judge_sentences(service, row, pieces, model, state)
    service.find(model)
    first = await anext(events)

    async def all_events() -> AsyncIterator[str]:
        yield first
        try:
            async for event in events:
                yield event
        except Problem as problem:  # the status is sent already
            yield write_event("error", problem.body(state["request_id"]))

    return StreamingResponse(all_events(), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


async def judge_sentences(
    service: Service, row: Row, pieces: AsyncIterator[str], model: str | None, state: Mapping[str, Any]
) -> AsyncIterator[str]:
    """Yields an event for each sentence, which is judged alone, then the verdict on the whole response."""
    text, done, read = "", 0, 0
    async for piece in pieces:
        text += piece
        # A sentence that goes on is divided again when it has grown by a sixteenth: work that is linear in the text.
        if len(text) - read > (read - done) // 16:
            read, places = len(text), sentence_places(text[done:])
            for begin, end in places[:-1]:  # the last one may go on
                yield await _judge_sentence(service, row, text, done + begin, done + end, model, state)
            done += places[-1][0] if places else 0
        if len(text) > service.settings.max_response_characters:
            raise Problem("row_too_large", "the response is too long", "send a shorter one", field="response")
    if not text.strip():
        raise Problem("invalid_request", "the response is empty", "send its text", field="response")
    for begin, end in sentence_places(text[done:]):
        yield await _judge_sentence(service, row, text, done + begin, done + end, model, state)
    name, (verdict,) = await service.check([row.model_copy(update={"response": text})], model, state, field="")
    whole = OneReply(**dict(verdict), model=name, request_id=state["request_id"])
    yield write_event("verdict", whole.model_dump())


async def _judge_sentence(
    service: Service, row: Row, text: str, begin: int, end: int, model: str | None, state: Mapping[str, Any]
) -> str:
    sentence = row.model_copy(update={"response": text[begin:end]})
    _, (verdict,) = await service.check([sentence], model, state, field="")
    found = verdict.model_dump()
    for span in found["spans"]:  # offsets of the whole response
        span["start"] += begin
        span["end"] += begin
    return write_event("sentence", {"start": begin, "end": end, "text": text[begin:end], **found})


def write_event(name: str, value: Any) -> str:
    """Writes a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"


async def read_lines(request: Request, service: Service) -> AsyncIterator[bytes]:
    """Yields the lines of a body as they arrive, within its limits.

    Raises:
        Problem: It is too large, or the next part does not come.
    """
    left, size, settings = b"", 0, service.settings
    parts = request.stream()
    while True:
        try:
            async with asyncio.timeout(settings.body_seconds):
                part = await anext(parts, None)
        except TimeoutError:
            raise Problem(
                "body_timeout", "no further line came", f"send one each {settings.body_seconds:g} s"
            ) from None
        if part is None:
            break
        size += len(part)
        if size > settings.max_body_bytes:
            raise Problem("body_too_large", "the body is too large", f"at most {settings.max_body_bytes} bytes")
        *lines, left = (left + part).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
    if left.strip():
        yield left


def add_routes(app: FastAPI, service: Service, refusals: dict[int | str, dict[str, Any]]) -> None:
    """Adds the route for a response that is still being written."""

    @app.post(
        "/v1/check/stream",
        summary="Check a response while it is written",
        responses=refusals | EVENTS,
        response_class=StreamingResponse,
        openapi_extra=DOCUMENT,
    )
    @streams_body
    async def check_stream(request: Request) -> StreamingResponse:
        if request.headers.get("content-type", "").partition(";")[0].strip() != LINES:
            raise Problem("wrong_content_type", "this route reads JSON lines", f"send Content-Type: {LINES}")
        lines = read_lines(request, service)
        first = _read_line(FirstLine, await anext(lines, b""), 1)

        async def pieces() -> AsyncIterator[str]:
            if first.response:
                yield first.response
            number = 1
            async for line in lines:
                number += 1
                yield _read_line(NextLine, line, number).response

        return await open_stream(service, first, pieces(), first.model, request.scope["state"])


def _read_line(kind: Any, line: bytes, number: int) -> Any:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, (f"line {number}", *first["loc"])))
        code = "invalid_json" if first["type"] == "json_invalid" else "invalid_request"
        raise Problem(code, str(first["msg"])[:200], "each line is a JSON object", field=field) from error
