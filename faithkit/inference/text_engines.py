"""Declares the block `engine`, which names a language model and the program that runs it, and builds the engine.

The engine is behind a cache of its replies in a SQLite file, so that a killed run continues without asking anything
twice. The file survives a kill at any time, and processes of one machine may share it (not over a network file system).
It holds only hashes of requests: no messages, and nothing about a server.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors, make_folder
from faithkit.files.cache import cache_dir
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import (
    AUTO,
    BEAM,
    ENGINES,
    NUCLEUS,
    OPENAI,
    TRANSFORMERS,
    VLLM,
    Decoding,
    Form,
    LocalOptions,
    Reply,
    Request,
    TextEngine,
    check_unique_ids,
)
from faithkit.packages import install_hint
from faithkit.settings.check import check_value, options
from faithkit.settings.types import (
    PRECISIONS,
    Count,
    Hint,
    OneOf,
    OrNull,
    PositiveShare,
    Text,
    Tokens,
)

LOCAL_OPTIONS = ("precision", "batch_size", "max_length", "memory_fraction", "num_gpus")
KEY_VERSION = 1  # raised when equal requests must be asked again
SETTINGS = ("strategy", "max_new_tokens", "min_new_tokens", "repetition_penalty")  # part of every key
STRATEGY_SETTINGS = {
    NUCLEUS: ("top_p", "temperature", "num_samples", "seed"),
    BEAM: ("num_beams", "num_samples"),
}
LOCK_SECONDS = 60.0  # to wait while another process writes
KEYS_PER_QUERY = 500
# The statements are constant, so an error in one (a column that is missing) means that the schema is damaged.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


@options()
class EngineOptions(ServerOptions):
    """The block `engine` of evaluate.py.

    Args:
        name: One of ENGINES; None for no language model.
        model: A folder, a local name or a hub name; of a server the model's name there.
        precision: Of a model on this machine.
        batch_size: Texts at a time; changes the speed, not the replies.
        max_length: Tokens of prompt and reply together.
        memory_fraction: Of a GPU's memory, for vLLM.
        num_gpus: That share the model, in vLLM (tensor parallel).
        cache: The file that keeps replies, so that nothing is asked twice: `auto` for one in the user's cache, None for
            no file.
    """

    name: Annotated[Any, OneOf((None, *ENGINES))] = None
    model: Text | None = None
    precision: Annotated[str, OneOf(PRECISIONS)] = "auto"
    batch_size: Annotated[Count | None, OrNull("for what suits the device")] = None
    max_length: Annotated[Tokens | None, OrNull("for all that the model has")] = None
    memory_fraction: Annotated[PositiveShare | None, OrNull("to leave it to vLLM")] = None
    num_gpus: Count = 1
    cache: Annotated[Text | None, Hint("use auto, a file's path, or null for none")] = AUTO


def build_text_engine(options: EngineOptions) -> TextEngine:
    """Builds the engine, behind the cache of its replies.

    Raises:
        UserError: No model is named, a package is missing, or the model cannot be loaded.
    """
    if not options.model:
        hint = "engine.model=NAME: a folder, a local name or a hub name; of a server the model's name there"
        raise UserError(f"engine={options.name} without a model", hint=hint)
    if options.name == OPENAI:
        from faithkit.inference.openai_engine import OpenAiEngine

        engine: TextEngine = OpenAiEngine(options.model, options)
    else:
        from faithkit.inference.local_text import load_local

        name = options.name
        if name == AUTO:
            from faithkit.inference.vllm_engine import check_platform

            name = VLLM
            try:
                check_platform()
            except UserError:  # vLLM is not installed, or finds no device
                name = TRANSFORMERS
        if name == TRANSFORMERS and options.num_gpus > 1:
            problem = f"vLLM alone divides a model over GPUs, and engine.num_gpus is {options.num_gpus}"
            raise UserError(problem, place=f"engine={options.name}", hint=f"{install_hint(VLLM)}, and engine=vllm")
        local = {name: getattr(options, name) for name in LOCAL_OPTIONS}
        engine = load_local(options.model, LocalOptions(engine=name, **local))
    if options.cache is None:
        return engine
    path = cache_dir() / "replies.sqlite" if options.cache == AUTO else Path(options.cache).expanduser()
    # Replies of a server are stored at once; losing a batch of a local model costs only time.
    return CachedEngine(engine, path, commit_every=1 if options.name == OPENAI else 32)


class CachedEngine:
    """Answers requests from a file, and asks an engine for the others.

    Requests are equal if engine, messages, settings and form are; for nucleus sampling also the request's id, which its
    samples depend on. Equal requests of one call are asked once. A reply with a problem is not stored, nor is one
    without any prompt tokens: it comes from an engine without probabilities that asked nothing. A reply without
    probabilities from an engine that did ask is stored.

    Args:
        path: The file; processes of one machine may share it.
        commit_every: Replies written at a time: 1 for a server, so that no arrived reply is lost; the batch size for a
            model on this machine, so that a kill loses at most a batch.

    Attributes:
        known: Requests answered from the file.
        asked: Requests that the engine has answered.
    """

    def __init__(self, engine: TextEngine, path: str | Path, *, commit_every: int = 1):
        check_value("commit_every", commit_every, Count)
        self.engine, self.path, self.commit_every = engine, path, commit_every
        self.known = self.asked = 0

    @property
    def identity(self) -> str:
        return self.engine.identity

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields the stored replies first, then the others as they arrive."""
        form = form or Form()
        names = (*SETTINGS, *STRATEGY_SETTINGS.get(decoding.strategy, ()))
        settings = {name: getattr(decoding, name) for name in names}
        how = ["generate", settings, form.choices, None if form.schema is None else dict(form.schema)]
        with_id = decoding.strategy == NUCLEUS
        keys = [self._key(request, [*how, request.id if with_id else ""]) for request in requests]
        return self._run(requests, keys, lambda unknown: self.engine.generate(unknown, decoding, form))

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields the stored replies first, then the others as they arrive."""
        keys = [self._key(request, ["weigh", sorted(choices)]) for request in requests]
        return self._run(requests, keys, lambda unknown: self.engine.weigh(unknown, choices))

    def _key(self, request: Request, how: list[Any]) -> bytes:
        messages = [[message.role, message.content] for message in request.messages]
        template = [request.template] if request.template else []
        text = json.dumps([KEY_VERSION, self.engine.identity, messages, how, *template], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def _run(
        self,
        requests: Sequence[Request],
        keys: Sequence[bytes],
        ask: Callable[[Sequence[Request]], Iterator[Reply]],
    ) -> Iterator[Reply]:
        check_unique_ids("requests", requests)
        unknown: dict[bytes, list[str]] = {}
        by_id = {request.id: request for request in requests}
        for request, key in zip(requests, keys, strict=True):
            unknown.setdefault(key, []).append(request.id)
        with closing(ReplyStore(self.path)) as store:
            for found, reply in store.find(list(unknown)):
                ids = unknown.pop(found)
                self.known += len(ids)
                yield from (replace(reply, id=id_) for id_ in ids)
            if unknown:
                key_of = {ids[0]: key for key, ids in unknown.items()}
                replies = ask([by_id[id_] for id_ in key_of])
                waiting: list[tuple[bytes, Reply]] = []  # the next batch to be written
                try:
                    for reply in replies:
                        if not reply.problem and (reply.texts or reply.probabilities or reply.prompt_tokens):
                            waiting.append((key_of[reply.id], reply))
                        if len(waiting) >= self.commit_every:
                            full, waiting = waiting, []
                            store.add(full)
                        ids = unknown[key_of[reply.id]]
                        self.asked, self.known = self.asked + 1, self.known + len(ids) - 1
                        yield from (replace(reply, id=id_) for id_ in ids)
                finally:
                    if close := getattr(replies, "close", None):  # after an error its frame would keep it open
                        close()
                    if waiting:
                        store.add(waiting)


class ReplyStore:
    """Finds and adds replies by key; a damaged row is ignored, and a damaged file refused.

    Args:
        path: The file; created if missing.
    """

    def __init__(self, path: str | Path):
        from filelock import FileLock  # imports asyncio

        self.path = Path(os.path.realpath(Path(path).expanduser()))
        make_folder(self.path.parent)
        with self._explained_errors(), FileLock(self.path.with_name(f".{self.path.name}.lock")):
            # A generator that holds the store may be closed by another thread than the one that started it.
            self._db = db = sqlite3.connect(self.path, timeout=LOCK_SECONDS, check_same_thread=False)
            try:
                tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if tables - {"replies"}:
                    hint = "choose another path for the cache"
                    raise UserError("not a cache of replies", place=str(self.path), hint=hint)
                db.execute("PRAGMA journal_mode=WAL")  # readers do not block a writer
                db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last replies, a kill none
                db.execute("CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB, checksum BLOB)")
            except BaseException:
                db.close()
                raise

    def find(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, Reply]]:
        """Yields the keys that have a reply, and the reply."""
        for start in range(0, len(keys), KEYS_PER_QUERY):
            part = keys[start : start + KEYS_PER_QUERY]
            marks = ",".join("?" * len(part))
            with self._explained_errors():
                rows = self._db.execute(f"SELECT key, reply, checksum FROM replies WHERE key IN ({marks})", part)
                found = rows.fetchall()
            for key, row, checksum in found:
                if checksum == _checksum(key, row):
                    texts, finished, probabilities, *counts = json.loads(row)
                    reply = Reply(id="", texts=tuple(texts), finished=tuple(finished), probabilities=probabilities)
                    yield key, replace(reply, prompt_tokens=counts[0], new_tokens=counts[1])

    def add(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Adds all replies or none; afterwards no kill of the process loses them."""
        rows = []
        for key, reply in replies:
            fields = [reply.texts, reply.finished, dict(reply.probabilities), reply.prompt_tokens, reply.new_tokens]
            row = json.dumps(fields).encode()
            rows.append((key, row, _checksum(key, row)))
        with self._explained_errors(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Turns SQLite's errors of the file and the disk into a `UserError` with a hint."""
        try:
            with disk_errors(self.path):
                yield
        except sqlite3.DatabaseError as error:
            kind = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF  # the primary code
            problem, hint = f"the cache of replies cannot be used: {error}", "free some space, or choose another path"
            if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                problem = f"another process has locked the cache of replies for {LOCK_SECONDS:.0f} s"
                hint = "wait for it, or choose another path"
            elif kind in _DAMAGED:
                problem, hint = (
                    f"the cache of replies is damaged: {error}",
                    "delete it: its replies are asked for again",
                )
            raise UserError(problem, place=str(self.path), hint=hint) from error


def _checksum(key: bytes, row: bytes) -> bytes:
    return hashlib.blake2b(key + row, digest_size=8).digest()
