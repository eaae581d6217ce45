"""The application: its own routes, verdicts as server-sent events, and the form of every refusal.

Its page takes a context and an answer and shows the marked answer; it calls no other address than its own. A stream has
an event for each sentence as soon as its text is complete, then one for the whole. A response that is still being
written comes as JSON lines to /v1/check/stream: first a request as for /v1/check, whose response may be missing, then
`{"response": "more text"}` for each further piece.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from prometheus_client import generate_latest
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import faithkit_workflows.serve.compatible as compatible
import faithkit_workflows.serve.jobs as jobs
from faithkit.errors import shorten
from faithkit.pages.page import fill_page
from faithkit.words import sentence_places
from faithkit_workflows.serve.gate import App, Gate, needs_no_key, streams_body
from faithkit_workflows.serve.schemas import (
    MEMBER,
    STATUSES,
    CheckConversation,
    CheckMany,
    CheckOne,
    ConversationReply,
    ManyReply,
    ModelCard,
    ModelList,
    OneReply,
    OwnRequest,
    Problem,
    Row,
    Text,
    TurnResult,
    document_refusals,
    limit_rows,
)
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
EXAMPLES = (
    {
        "name": "a wrong number",
        "context": "The pump comes with a warranty of 24 months from the date of purchase. The filter is excluded.\n\n"
        "Returns are free within 30 days.",
        "question": "How long is the warranty?",
        "answer": "The pump has a warranty of 36 months from the date of purchase. Returns are free within 30 days.",
    },
    {
        "name": "a supported answer",
        "context": "The museum opens from Tuesday to Sunday, from 10 am to 6 pm. On Thursdays it closes at 9 pm. "
        "Admission is 12 euros; children under 14 enter free of charge.",
        "question": "What does it cost?",
        "answer": "Admission is 12 euros; children under 14 enter free of charge.",
    },
    {
        "name": "a contradiction",
        "context": "Adults take one tablet twice a day with food. Do not take this medicine with alcohol. Children "
        "under 12 must not take it.",
        "question": "How do I take it?",
        "answer": "Take this medicine with alcohol.",
    },
)
log = logging.getLogger("faithkit")
DESCRIPTION = """Is a response supported by its context, and which parts are not?

Offsets of spans count Unicode characters. With API keys, send `Authorization: Bearer KEY`."""
CHECK_CODES = (
    *("unknown_model", "row_too_large", "threshold_not_supported", "too_many_rows", "wrong_content_type"),
    *("loading", "queue_full", "timeout", "no_verdict", "language_not_read"),
)


class FirstLine(CheckOne):
    """The request whose response follows."""

    response: str = ""
    stream: bool = True


class NextLine(OwnRequest):
    """A further piece of the response."""

    response: str = Field(min_length=1)


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

    async def judge_sentence(begin: int, end: int) -> str:
        sentence = row.model_copy(update={"response": text[begin:end]})
        _, (verdict,) = await service.check([sentence], model, state, field="")
        found = verdict.model_dump()
        for span in found["spans"]:  # offsets of the whole response
            span["start"] += begin
            span["end"] += begin
        return write_event("sentence", {"start": begin, "end": end, "text": text[begin:end], **found})

    async for piece in pieces:
        text += piece
        # A sentence that goes on is divided again when it has grown by a sixteenth: work that is linear in the text.
        if len(text) - read > (read - done) // 16:
            read, places = len(text), sentence_places(text[done:])
            for begin, end in places[:-1]:  # the last one may go on
                yield await judge_sentence(done + begin, done + end)
            done += places[-1][0] if places else 0
        if len(text) > service.settings.max_response_characters:
            raise Problem("row_too_large", "the response is too long", "send a shorter one", field="response")
    if not text.strip():
        raise Problem("invalid_request", "the response is empty", "send its text", field="response")
    for begin, end in sentence_places(text[done:]):
        yield await judge_sentence(done + begin, done + end)
    name, (verdict,) = await service.check([row.model_copy(update={"response": text})], model, state, field="")
    whole = OneReply(**dict(verdict), model=name, request_id=state["request_id"])
    yield write_event("verdict", whole.model_dump())


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


def _add_stream_route(app: FastAPI, service: Service, refusals: dict[int | str, dict[str, Any]]) -> None:
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


def create_app(service: Service) -> App:
    """Creates the application."""
    unused: dict[str, Any] = {"docs_url": None, "redoc_url": None}
    unused["telemetry"] = {"tracing": False, "metrics": False, "logs": False}  # the gate records requests
    app = FastAPI(title="faithkit", version="1", description=DESCRIPTION, **unused)
    _handle_errors(app)
    _add_routes(app, service)
    _add_stream_route(app, service, document_refusals(*CHECK_CODES))
    compatible.add_routes(app, service, document_refusals(*CHECK_CODES))
    jobs.add_routes(app, service)
    settings, make = service.settings, app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None and service.keys:
            found = make()
            found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"key": []}]
        return make()  # FastAPI keeps what it has made

    app.openapi = document  # type: ignore[method-assign]
    gate = Gate(app, service)
    if not settings.cors_origins:
        return gate
    # Outside of the gate: a browser asks whether it may ask without a key.
    return CORSMiddleware(gate, allow_origins=settings.cors_origins, allow_methods=["GET", "POST"], allow_headers=["*"])


def _add_routes(app: FastAPI, service: Service) -> None:
    @cache
    def render_page(*, has_keys: bool) -> str:
        settings = {"models": list(service.models), "has_keys": has_keys, "examples": EXAMPLES}
        page = fill_page(
            "check.html",
            title="Is the answer supported?",
            styles=("style.css", "check.css"),
            scripts=("answer.js", "tips.js", "check.js"),
            blocks={"settings": [settings]},
            connects=True,
        )
        return "".join(page)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @needs_no_key
    async def show_page() -> HTMLResponse:
        headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
        return HTMLResponse(render_page(has_keys=bool(service.keys)), headers=headers)

    @app.get("/health/live", summary="Is the process running?", responses=document_refusals())
    @needs_no_key
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @app.get("/health/ready", summary="Has every model judged a row?", responses=document_refusals())
    @needs_no_key
    async def ready() -> Response:
        models = service.models.values()
        states = {one.name: one.problem or ("ready" if one.is_ready else "loading") for one in models}
        has_jobs = service.jobs is None or service.jobs.is_running
        is_ready = all(one.is_ready for one in models) and has_jobs and not service.is_draining
        status = "ready" if is_ready else "draining" if service.is_draining else "loading"
        return JSONResponse({"status": status, "models": states}, 200 if is_ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="For Prometheus", responses=document_refusals())
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(generate_latest(service.telemetry.registry))

    def list_cards() -> list[ModelCard]:
        return [
            ModelCard(
                id=model.name,
                created=model.created,
                checkpoint=model.checkpoint if service.is_local else model.name,  # paths are for its users
                threshold=model.threshold_text,
                marks_spans=model.kind.marks_spans,
            )
            for model in service.models.values()
        ]

    @app.get("/v1/models", summary="The served models", responses=document_refusals())
    async def list_models() -> ModelList:
        return ModelList(data=list_cards())

    @app.get("/v1/models/{id}", summary="One served model", responses=document_refusals("unknown_model"))
    async def retrieve_model(id: Text) -> ModelCard:
        card = next((one for one in list_cards() if one.id == id), None)
        if card is None:
            raise Problem("unknown_model", "no such model is served", "see GET /v1/models", field="id")
        return card

    @app.post(
        "/v1/check",
        summary="Check one response, several, or the turns of a conversation",
        response_model=OneReply | ManyReply | ConversationReply,
        responses=document_refusals(*CHECK_CODES) | EVENTS,
    )
    async def check(request: Request, body: Annotated[limit_rows(service.settings.max_rows), Body()]) -> Any:  # type: ignore[valid-type]
        state = request.scope["state"]
        if isinstance(body, CheckMany):
            name, verdicts = await service.check(body.rows, body.model, state)
            return ManyReply(verdicts=verdicts, model=name, request_id=state["request_id"])
        if isinstance(body, CheckConversation):
            service.find(body.model)
            rows, notes = await asyncio.to_thread(body.rows, service.settings.max_rows)
            places = [row.message - 1 for row in rows]
            name, verdicts = await service.check(rows, body.model, state, field="messages", numbers=places)
            found = [
                TurnResult(**dict(verdict), turn=row.turn, message=row.message, response=row.response)
                for verdict, row in zip(verdicts, rows, strict=True)
            ]
            return ConversationReply(verdicts=found, notes=notes, model=name, request_id=state["request_id"])
        if body.stream:

            async def pieces() -> AsyncIterator[str]:
                yield body.response

            return await open_stream(service, body, pieces(), body.model, state)
        name, (verdict,) = await service.check([body], body.model, state, field="")
        return OneReply(**dict(verdict), model=name, request_id=state["request_id"])


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def refuse(request: Request, problem: Problem) -> JSONResponse:
        state = request.scope.get("state", {})
        state.get("facts", {})["code"] = problem.code
        return JSONResponse(problem.body(state.get("request_id")), problem.status, problem.headers)

    @app.exception_handler(RequestValidationError)
    async def refuse_values(request: Request, error: RequestValidationError) -> JSONResponse:
        first, help_ = error.errors()[0], "see /openapi.json for the fields and their types"
        # Half of a surrogate pair, which JSON may spell, cannot be sent back.
        place = [shorten(part)[1:-1] for part in map(str, first["loc"][1:]) if not MEMBER.match(part)]
        code, message, field = "invalid_request", shorten(str(first["msg"]), 200)[1:-1], ".".join(place) or None
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if first["type"] == "json_invalid":
            code, message, help_, field = "invalid_json", "the body is not JSON", "send JSON in UTF-8", None
        elif kind != "application/json" and not place:
            code, message = "wrong_content_type", f"bodies of type {kind[:40] or 'none'} are not read"
            help_ = "send Content-Type: application/json"
        elif first["type"] == "too_long" and place in (["rows"], ["text_1"], ["text_2"], ["input"]):
            most = first["ctx"]["max_length"]
            code, message = "too_many_rows", f"more than {most} rows are too many"
            help_ = f"send at most {most} rows; tables go to POST /v1/jobs"
        elif first["type"] in ("string_too_short", "string_pattern_mismatch"):
            message = "the text is empty"
        return await refuse(request, Problem(code, message, help_, field=field))

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == STATUSES["method_not_allowed"]:
            problem = Problem("method_not_allowed", "this route has another method", "see /openapi.json")
        elif error.status_code == STATUSES["not_found"]:
            problem = Problem("not_found", "there is no such route", "see /openapi.json")
        else:
            problem = Problem("invalid_json", "the body cannot be read", "send JSON in UTF-8, not deeply nested")
        answer = await refuse(request, problem)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def refuse_fault(request: Request, error: Exception) -> JSONResponse:
        log.error("request %s failed", request.scope["state"].get("request_id"), exc_info=error)
        return await refuse(
            request, Problem("internal_error", "the service has failed", "report it with the request id")
        )
