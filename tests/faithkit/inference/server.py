"""An OpenAI-compatible server in this process: it misbehaves on order and counts what it is asked."""

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "small"
HALF = b'{"id": "x", "object": "chat.completion", "choices": [{"index": 0, "mess'


@dataclass(frozen=True)
class Fault:
    """A fault of the server, in the place of a good answer.

    Args:
        body: Sent instead of an answer; None sends the right one.
        missing: Bytes that the header promises beyond the body, before the connection closes.
        seconds: Of silence before.
        disconnect: Closes the connection without a word.
    """

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    seconds: float = 0.0
    disconnect: bool = False


def refusal(status: int, message: str, *, code: str | None = None, param: str | None = None, **headers: str) -> Fault:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "error", "code": code, "param": param}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault(status, json.dumps({"error": error}).encode(), named)


def answering(**changes: Any) -> Fault:
    """An answer whose only choice is as given."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}} | changes
    return Fault(body=json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode())


LIMITED = refusal(429, "slow down", Retry_After="0.05")
FAILED = refusal(500, "something broke", Retry_After="0.01")


def echo(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
    """Answers with what was asked last; a sample depends on its seed and number."""
    return messages[-1]["content"] + ("" if seed is None else f" {seed}.{sample}")


class ChatServer:
    """Answers chat completions deterministically, until it is closed.

    Args:
        faults: What it does with the first requests, one each, before it answers well.
        always: What it does with all others; a function looks at the request.
        tells: Probabilities of the first token; None gives none.
        fewest: Texts that it writes at a time, whatever n is asked for; None writes n.
    """

    def __init__(
        self,
        *faults: Fault,
        always: Fault | Callable[[dict[str, Any]], Fault | None] | None = None,
        answer: Callable[[list[dict[str, str]], int | None, int], str] = echo,
        tells: Mapping[str, float] | None = None,
        owner: str = "tests",
        models: Iterable[str] = (MODEL,),
        seconds: float = 0.0,
        fewest: int | None = None,
    ):
        self.faults, self.always, self.answer, self.tells = list(faults), always, answer, tells
        self.owner, self.models, self.seconds, self.fewest = owner, list(models), seconds, fewest
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.answered: Counter[str] = Counter()  # by the last message, once the answer has been sent whole
        self.open = self.most_open = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> "ChatServer":
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def contents(self) -> list[str]:
        """Lists the last message of each request."""
        return [body["messages"][-1]["content"] for body in self.asked]

    def note(self, body: dict[str, Any], key: str) -> Fault | None:
        """Counts a request, and says how to misbehave at it."""
        with self._lock:
            self.asked.append(body)
            self.keys.append(key)
            self.times.append(time.monotonic())
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            if self.faults:
                return self.faults.pop(0)
        return self.always(body) if callable(self.always) else self.always

    def note_end(self, body: dict[str, Any], *, answered: bool) -> None:
        with self._lock:
            self.open -= 1
            self.answered[body["messages"][-1]["content"]] += answered

    def complete(self, body: dict[str, Any]) -> bytes:
        """Writes the right answer to a request."""
        number = min(body.get("n", 1), self.fewest or 10**9)
        texts = [self.answer(body["messages"], body.get("seed"), sample) for sample in range(number)]
        read = sum(len(message["content"].split()) for message in body["messages"])
        choices = [
            {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **self._tell(body)}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": read, "completion_tokens": sum(len(text.split()) for text in texts)}
        return json.dumps({"id": "x", "object": "chat.completion", "choices": choices, "usage": usage}).encode()

    def _tell(self, body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("logprobs") or self.tells is None:
            return {}
        likeliest = sorted(self.tells.items(), key=lambda pair: -pair[1])[: body["top_logprobs"]]
        top = [{"token": token, "logprob": math.log(chance)} for token, chance in likeliest]
        return {"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}


def _handler_of(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = [{"id": name, "object": "model", "owned_by": server.owner} for name in server.models]
            self.send(200, json.dumps({"object": "list", "data": listed}).encode(), {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault = server.note(body, self.headers["Authorization"])
            answered = False
            try:
                answered = self.reply(body, fault or Fault(seconds=server.seconds))
            finally:
                server.note_end(body, answered=answered)

        def reply(self, body: dict[str, Any], fault: Fault) -> bool:
            time.sleep(fault.seconds)
            if fault.disconnect:
                self.close_connection = True
                return False
            content = server.complete(body) if fault.body is None else fault.body
            try:
                self.send(fault.status, content, fault.headers, len(content) + fault.missing)
            except OSError:  # whoever asked is gone
                self.close_connection = True
                return False
            self.close_connection = self.close_connection or fault.missing > 0
            return fault.body is None

        def send(self, status: int, content: bytes, headers: Mapping[str, str], length: int | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) if length is None else length))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
