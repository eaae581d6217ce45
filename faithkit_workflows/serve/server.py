"""Runs the service: opens the port, loads the models behind it, and ends without losing accepted requests."""

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from faithkit.errors import UserError
from faithkit.signals import EXIT_CODE
from faithkit_workflows.serve.app import create_app
from faithkit_workflows.serve.gate import SAFE, access_log
from faithkit_workflows.serve.schemas import Problem
from faithkit_workflows.serve.service import Service
from faithkit_workflows.settings.reporting import ServeSettings, is_loopback

log = logging.getLogger("faithkit")
HEADER_SECONDS, KEEP_ALIVE_SECONDS = 10, 30
MAX_HEADER_BYTES = 65_536
REPEAT_SECONDS = 10  # in which a message of the event loop is logged once


class Protocol(H11Protocol):
    """HTTP/1.1; what is not is refused as JSON, and a connection without complete headers is closed after a while."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        """Ends the wait where the headers are complete, and begins it where a next request has begun."""
        super().data_received(data)
        has_request = self.cycle is not None and not self.cycle.response_complete
        if has_request:
            self._end_wait()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP in the documented form; a reply that has begun ends where it is."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            id_ = uuid.uuid4().hex
            help_ = f"send HTTP/1.1 with headers of at most {MAX_HEADER_BYTES} bytes"
            body = json.dumps(Problem("invalid_http", "the request is not valid HTTP", help_).body(id_)).encode()
            headers = SAFE | {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": id_}
            parts = (
                h11.Response(status_code=400, headers=list((headers | {"Connection": "close"}).items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        self._end_wait()
        super().connection_lost(exc)

    def _end_wait(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class RepeatFilter(logging.Filter):
    """Leaves out messages that were logged a moment ago, as the event loop's when there are no descriptors left."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tells whether a message is logged."""
        key, now = record.getMessage()[:80], time.monotonic()
        is_new = now - self._logged.get(key, -REPEAT_SECONDS) >= REPEAT_SECONDS
        if is_new:
            self._logged[key] = now
        return is_new


class Server(uvicorn.Server):
    """uvicorn's server, whose end is ours: SIGTERM drains, SIGHUP loads models and keys again."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self.service, self.received = service, 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals in the event loop, and does not raise them again at the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        yield

    def _end(self, number: int) -> None:
        seconds = 0 if self.received else self.service.settings.drain_seconds
        asyncio.get_running_loop().call_later(seconds, self.service.ending.set)
        self.received = self.received or number
        self.service.is_draining = self.should_exit = True
        log.info("ending: %d rows wait", self.service.num_waiting)

    def _reload(self) -> None:
        log.info("loading models and keys again")
        try:
            self.service.read_keys()
        except (UserError, OSError) as error:
            log.error("the keys stay as they are: %s", error)
        self.service.load()


def serve(settings: ServeSettings) -> None:
    """Serves until a signal ends the process: exit code 0 after SIGTERM, 130 after Ctrl-C.

    Raises:
        UserError: The port is taken, or not allowed.
    """
    # The log goes to standard error, and the access log, one JSON object a line, to standard output.
    text, lines = logging.StreamHandler(sys.stderr), logging.StreamHandler(sys.stdout)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    lines.setFormatter(logging.Formatter("%(message)s"))
    for logger, handler in ((log, text), (access_log, lines)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("asyncio").addFilter(RepeatFilter())
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # idle connections take descriptors
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(2048)  # who connects before the models are loaded waits, and is answered
    except OSError as error:
        hint = f"port={port + 1}, or port=0 for a free one" if port < 65535 else "use another port"
        raise UserError(f"cannot listen: {error.strerror or error}", place=f"{host}:{port}", hint=hint) from error
    host, port = opened.getsockname()[:2]
    service = Service(settings)
    app = create_app(service)
    log.info(
        "http://%s:%d serves %s", host if is_loopback(host) else settings.host, port, ", ".join(settings.checkpoints())
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain_seconds) + 5,  # for the replies to what is unanswered
        proxy_headers=False,  # who sends X-Forwarded-For could choose the address that is limited and logged
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        http=Protocol,
        ws="none",
    )
    server = Server(config, service)
    if service.jobs is not None:
        service.jobs.lock()
    service.load()
    asyncio.run(_run(server, service, opened))
    code = EXIT_CODE if server.received == signal.SIGINT else 0
    if service.is_judging:  # a thread within torch would abort the interpreter's end
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


async def _run(server: Server, service: Service, opened: socket.socket) -> None:
    if service.jobs is not None:
        service.jobs.start()
    try:
        await server.serve(sockets=[opened])
    finally:
        if service.jobs is not None:
            await service.jobs.stop()
        await asyncio.to_thread(service.telemetry.close)
