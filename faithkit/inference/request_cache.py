"""Remembers a model's replies, so that a run that was killed goes on without asking anything twice."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from faithkit.checks import check_number
from faithkit.inference.decoding import BEAM, NUCLEUS, Decoding
from faithkit.inference.reply_store import ReplyStore
from faithkit.inference.text import Form, Reply, Request, TextEngine, check_requests

VERSION = 1  # of the keys: raised where an equal request should be asked anew
ALWAYS = ("strategy", "max_new_tokens", "min_new_tokens", "repetition_penalty")
MATTERS = {  # of the settings, beside those that always do
    NUCLEUS: ("top_p", "temperature", "num_samples", "seed"),
    BEAM: ("num_beams", "num_samples"),
}


class CachedEngine:
    """Answers from a file what it has a reply to, and asks an engine the rest.

    Requests are equal where engine, messages, settings and form are; for nucleus sampling the request's id too, since
    its samples depend on it. Of equal requests in one call one is asked, and its reply is that of all. A reply with a
    problem is passed on and forgotten, and so is one for which no prompt was read: of an engine that can tell no
    probabilities and asked nobody for them. A reply that lacks them though somebody was asked is kept.

    Args:
        path: The file; several processes of one machine may share it.
        commit_every: Replies that are written at a time. 1 for a server: what has arrived is never lost. For a model on
            this machine its batch size: then a kill costs a batch at most.

    Attributes:
        known: Requests answered without asking.
        asked: Requests that the engine has dealt with.
    """

    def __init__(self, engine: TextEngine, path: str | Path, *, commit_every: int = 1):
        check_number("commit_every", commit_every, 1, 10**6, whole=True)
        self.engine, self.path, self.commit_every = engine, path, commit_every
        self.known = self.asked = 0

    @property
    def identity(self) -> str:
        return self.engine.identity

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields the known replies first, then the others as they end."""
        check_requests(requests)
        held = form or Form()
        settings = {name: getattr(decoding, name) for name in (*ALWAYS, *MATTERS.get(decoding.strategy, ()))}
        how = ["generate", settings, held.choices, None if held.schema is None else dict(held.schema)]

        def key(request: Request) -> bytes:
            return self._key(request, [*how, request.id if decoding.strategy == NUCLEUS else ""])

        return self._run(requests, key, lambda asked: self.engine.generate(asked, decoding, form))

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields the known replies first, then the others as they end."""
        check_requests(requests)
        how = ["weigh", sorted(choices)]
        return self._run(requests, lambda r: self._key(r, how), lambda asked: self.engine.weigh(asked, choices))

    def _key(self, request: Request, how: list[Any]) -> bytes:
        messages = [[message.role, message.content] for message in request.messages]
        return hashlib.sha256(
            json.dumps([VERSION, self.engine.identity, messages, how], sort_keys=True).encode()
        ).digest()

    def _run(
        self,
        requests: Sequence[Request],
        key: Callable[[Request], bytes],
        ask: Callable[[Sequence[Request]], Iterator[Reply]],
    ) -> Iterator[Reply]:
        unknown: dict[bytes, list[str]] = {}
        by_id = {request.id: request for request in requests}
        for request in requests:
            unknown.setdefault(key(request), []).append(request.id)
        with closing(ReplyStore(self.path)) as store:
            for found, reply in store.find(list(unknown)):
                ids = unknown.pop(found)
                self.known += len(ids)
                yield from _for_each(ids, reply)
            if unknown:
                keys = {ids[0]: key for key, ids in unknown.items()}
                for reply in self._store(store, keys, ask([by_id[one] for one in keys])):
                    ids = unknown[keys[reply.id]]
                    self.asked, self.known = self.asked + 1, self.known + len(ids) - 1
                    yield from _for_each(ids, reply)

    def _store(self, store: ReplyStore, keys: dict[str, bytes], replies: Iterator[Reply]) -> Iterator[Reply]:
        """Passes replies on, each once it is written or waits for its batch to be full."""
        waiting: list[tuple[bytes, Reply]] = []
        try:
            for reply in replies:
                if not reply.problem and (reply.texts or reply.probabilities or reply.prompt_tokens):
                    waiting.append((keys[reply.id], reply))
                if len(waiting) >= self.commit_every:
                    full, waiting = waiting, []
                    store.add(full)
                yield reply
        finally:
            if close := getattr(replies, "close", None):  # at once: after an error its frame would keep it open
                close()
            if waiting:
                store.add(waiting)


def _for_each(ids: Sequence[str], reply: Reply) -> Iterator[Reply]:
    for one in ids:
        yield replace(reply, id=one)
