"""What happens to a request before a route sees it: limits, key, body; and its line in the access log.

A body is refused by its declared length before it is read, and by its real length while it is read. A client that
sends slowly, or goes away, ends its own request only, and drops its rows from the queue.

The log is JSON, without the texts of requests, unless `log_texts=true` puts them there.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from faithkit_workflows.serve.keys import find_name
from faithkit_workflows.serve.schemas import Problem
from faithkit_workflows.serve.service import RECEIVING, Service

access_log = logging.getLogger("faithkit.access")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
DOCUMENT = "/openapi.json"  # FastAPI's own route
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def needs_no_key(endpoint: Endpoint) -> Endpoint:
    """Marks a route that anybody may ask; none of them reads a body."""
    vars(endpoint)["needs_key"] = False
    return endpoint


def streams_body(endpoint: Endpoint) -> Endpoint:
    """Marks a route that reads its body itself, under its own limits, as it arrives."""
    vars(endpoint)["streams_body"] = True
    return endpoint


class Gate:
    """An ASGI application around the routes.

    Args:
        app: Which routes need no key, and which read their bodies themselves, is marked at them.
        service: Its settings have the limits. Without `allowed_hosts` a service of this machine takes the names of it
            in the header Host, and another takes all.
    """

    def __init__(self, app: Starlette, service: Service):
        self.app, self.service, self.settings = app, service, service.settings
        local = frozenset({"localhost", "127.0.0.1", "::1"} if service.is_local else ())
        self.hosts = frozenset(self.settings.allowed_hosts) or local
        self._buffered = self._num_open = 0
        marks = {str(getattr(route, "path", "")): vars(getattr(route, "endpoint", object)) for route in app.routes}
        self.open_paths = {path for path, found in marks.items() if not found.get("needs_key", True)} | {DOCUMENT}
        self.streamed_paths = {path for path, found in marks.items() if found.get("streams_body")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Request(self, scope, receive, send)
        is_counted = request.path not in self.open_paths
        self._num_open += is_counted
        try:
            await request.handle()
        finally:
            self._num_open -= is_counted

    def check(self, request: "_Request") -> None:
        """Checks what the headers tell.

        Raises:
            Problem: The request is refused.
        """
        host = request.headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self.hosts and host not in self.hosts:
            raise Problem("unknown_host", "the header Host names another machine", "set allowed_hosts=[NAME]")
        if (keys := self.service.keys) and request.path not in self.open_paths:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            key = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
            if not key:
                raise Problem("missing_key", "an API key is needed", "send Authorization: Bearer KEY")
            if (name := find_name(keys, key)) is None:
                raise Problem("wrong_key", "this API key is not valid", "ask the service's owner for a key")
            request.client = name
        if self.service.is_draining and not request.path.startswith("/health"):
            raise Problem("draining", "the service is ending", "try again in a moment", retry_seconds=5)
        if self._num_open > self.settings.max_requests and not request.path.startswith("/health"):
            raise Problem("queue_full", "too many requests are open", "try again", retry_seconds=1)
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            raise Problem("encoded_body", f"bodies in {encoding[:20]} are not read", "send the body as it is")
        length = request.headers.get("content-length", "0")
        if (
            request.path not in self.streamed_paths
            and length.isdecimal()
            and int(length) > self.settings.max_body_bytes
        ):
            raise self._too_large()

    def _too_large(self) -> Problem:
        help_ = f"send at most {self.settings.max_body_bytes} bytes; tables go to POST /v1/jobs"
        return Problem("body_too_large", "the body is too large", help_)

    async def read(self, receive: Receive) -> bytes | None:
        """Reads a body; None if the client has gone.

        Raises:
            Problem: It is too large, or does not arrive in time.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    parts.append(part)
                    size += len(part)
                    self._buffered += len(part)
                    if size > self.settings.max_body_bytes:
                        raise self._too_large()
                    if self._buffered > 16 * self.settings.max_body_bytes:  # of all requests
                        raise Problem("queue_full", "too many bytes are being received", "try again", retry_seconds=1)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            help_ = f"send the whole body within {self.settings.body_seconds:g} seconds"
            raise Problem("body_timeout", "the body did not arrive in time", help_) from None
        finally:
            self._buffered -= size


class _Request:
    """One request on its way through the gate."""

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send):
        self.gate, self.scope, self._receive, self._send = gate, scope, receive, send
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.path, self.method = scope["path"], scope["method"]
        self.id, self.began = uuid.uuid4().hex, time.perf_counter()
        self.client = (scope.get("client") or ("local",))[0]
        self.status, self.has_begun, self.has_read = 499, False, False
        self.facts: dict[str, Any] = {}
        scope.setdefault("state", {})

    async def handle(self) -> None:
        """Answers the request, and logs it."""
        self.gate.service.telemetry.in_flight.inc()
        try:
            with self.gate.service.telemetry.trace(self.method, self.headers, lambda: (self.route, self.status)):
                try:
                    await self._answer()
                except Problem as problem:
                    self.facts["code"] = problem.code
                    if not self.has_begun:  # a stream ends where it is
                        reply: Response = JSONResponse(problem.body(self.id), problem.status, problem.headers)
                        await reply(self.scope, self._receive, self.send)
        finally:
            self.gate.service.telemetry.in_flight.dec()
            seconds = time.perf_counter() - self.began
            if code := self.facts.get("code"):
                self.gate.service.telemetry.errors.labels(code).inc()
            self.gate.service.telemetry.requests.labels(self.route, str(self.status)).observe(seconds)
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "request_id": self.id,
                "client": self.client,
                "method": self.method,
                "path": self.path[:200],
                "status": self.status,
                "seconds": round(seconds, 4),
            }
            access_log.info(json.dumps(line | self.facts))

    @property
    def route(self) -> str:
        """The path as its route declares it, so that clients cannot make up names."""
        return getattr(self.scope.get("route"), "path", None) or ("unmatched" if self.status != 499 else "gone")

    async def _answer(self) -> None:
        self.gate.check(self)
        self.scope["state"] |= {"request_id": self.id, "client": self.client, "facts": self.facts}
        if self.path in self.gate.streamed_paths:
            # From this version on, a streamed reply does not read the body's messages to see whether the client goes.
            self.scope["asgi"] = {**self.scope.get("asgi", {}), "spec_version": "2.4"}
            with suppress(ClientDisconnect):  # it left while it sent its body
                await self._within(self.gate.app(self.scope, self._receive, self.send), None)
            return
        body: bytes | None = b""
        if self.method in ("POST", "PUT", "PATCH") and self.path not in self.gate.open_paths:
            self.gate.service.count_receiving(1)
            try:
                body = await self.gate.read(self._receive)
            finally:
                self.gate.service.count_receiving(-1)
            self.gate.service.telemetry.stages.labels(RECEIVING).observe(time.perf_counter() - self.began)
            self.has_read = True
        if body is None:
            return
        self.facts["bytes"] = len(body)
        replay = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            if replay:
                return replay.pop()
            await asyncio.Event().wait()  # `_within` sees that the client goes
            raise AssertionError

        await self._within(self.gate.app(self.scope, receive, self.send), self._wait_until_gone())

    async def _within(self, answer: Any, gone: Any) -> None:
        """Runs the routes until they have answered, the client has gone, or the time or the service is over."""
        ending = self.gate.service.ending.wait()
        tasks = [asyncio.ensure_future(one) for one in (answer, ending, gone) if one is not None]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=self.gate.settings.request_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in tasks[1:]:
                task.cancel()
            if not tasks[0].done():
                tasks[0].cancel()
        if tasks[0] in done:
            tasks[0].result()
        elif tasks[1] in done:
            raise Problem("draining", "the service has ended", "send it again", retry_seconds=5)
        elif not done:
            help_ = f"send fewer or shorter rows: a request has {self.gate.settings.request_seconds:g} seconds"
            raise Problem("timeout", "the request took too long", help_)

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Sends a part of the reply; the first gets the headers that every reply has."""
        if message["type"] == "http.response.start":
            self.status, self.has_begun = message["status"], True
            added = SAFE | {"X-Request-Id": self.id}
            has_body = self.headers.get("content-length", "0") != "0" or "transfer-encoding" in self.headers
            if has_body and not self.has_read and self.path not in self.gate.streamed_paths:
                added["Connection"] = "close"  # the rest of the body is not read
            message["headers"] = [
                *message.get("headers", ()),
                *((name.lower().encode(), value.encode()) for name, value in added.items()),
            ]
        await self._send(message)
