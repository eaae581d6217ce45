"""An engine that counts what it is asked: it shows what a cache asks and what it knows."""

from collections.abc import Callable, Iterator, Sequence

from faithkit.errors import UserError
from faithkit.inference.text import Decoding, Form, Reply, Request

# Engines without probabilities: one asks a server that answers without them, the other knows that it need not ask.
SILENT, UNABLE = "silent", "unable"


class CountingEngine:
    """Answers at once, and keeps what it was asked.

    Args:
        fails: Ids that it has a problem with.
        stops_after: Replies after which it raises.
    """

    def __init__(self, identity: str = "model", fails: Sequence[str] = (), stops_after: int = 10**9):
        self.identity, self.fails, self.stops_after = identity, fails, stops_after
        self.asked: list[str] = []
        self.closed = False

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        def reply(request: Request) -> Reply:
            text = f"{request.messages[-1].content}!"
            return Reply(id=request.id, texts=(text,) * decoding.num_samples, finished=(True,) * decoding.num_samples)

        return self._run(requests, reply)

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        chances = dict.fromkeys(choices, 1 / len(choices)) if self.identity not in (SILENT, UNABLE) else {}
        tokens = 0 if self.identity == UNABLE else 7
        return self._run(requests, lambda request: Reply(id=request.id, probabilities=chances, prompt_tokens=tokens))

    def _run(self, requests: Sequence[Request], reply: Callable[[Request], Reply]) -> Iterator[Reply]:
        try:
            for number, request in enumerate(requests):
                if number == self.stops_after:
                    raise UserError("the key is refused")
                self.asked.append(request.id)
                failed = request.id in self.fails
                yield Reply(id=request.id, problem="it failed") if failed else reply(request)
        finally:
            self.closed = True
