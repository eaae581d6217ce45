"""Caches replies of models in a SQLite file, so that a killed run continues without asking anything twice.

The file survives a kill at any time, and processes of one machine may share it (not over a network file system). It
holds only hashes of requests: no messages, and nothing about a server.
"""

import errno
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from faithkit.arguments import check_number
from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors, make_folder
from faithkit.inference.decoding import BEAM, NUCLEUS, Decoding
from faithkit.inference.text import Form, Reply, Request, TextEngine, check_requests

log = logging.getLogger(__name__)
KEY_VERSION = 1  # raised when equal requests must be asked again
SETTINGS = ("strategy", "max_new_tokens", "min_new_tokens", "repetition_penalty")  # part of every key
STRATEGY_SETTINGS = {
    NUCLEUS: ("top_p", "temperature", "num_samples", "seed"),
    BEAM: ("num_beams", "num_samples"),
}
APPLICATION_ID, FORMAT = 0x666B7270, 1  # in the header of the file
LOCK_SECONDS = 60.0  # to wait while another process writes
KEYS_PER_QUERY = 500
# The statements are constant, so an error in one (a column that is missing) means that the schema is damaged.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_SYSTEM_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EPERM,
}


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
        check_number("commit_every", commit_every, 1, 10**6, whole=True)
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
        text = json.dumps([KEY_VERSION, self.engine.identity, messages, how], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def _run(
        self,
        requests: Sequence[Request],
        keys: Sequence[bytes],
        ask: Callable[[Sequence[Request]], Iterator[Reply]],
    ) -> Iterator[Reply]:
        check_requests(requests)
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
                for reply in self._store(store, key_of, ask([by_id[id_] for id_ in key_of])):
                    ids = unknown[key_of[reply.id]]
                    self.asked, self.known = self.asked + 1, self.known + len(ids) - 1
                    yield from (replace(reply, id=id_) for id_ in ids)

    def _store(self, store: "ReplyStore", keys: dict[str, bytes], replies: Iterator[Reply]) -> Iterator[Reply]:
        """Passes replies on after writing them, or adding them to the next batch to be written."""
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
            if close := getattr(replies, "close", None):  # after an error its frame would keep it open
                close()
            if waiting:
                store.add(waiting)


class ReplyStore:
    """Finds and adds replies by key. A damaged file is renamed, and a new one replaces it; a damaged row is ignored.

    Args:
        path: The file; created if missing.
    """

    def __init__(self, path: str | Path):
        from filelock import FileLock  # imports asyncio

        self.path = Path(os.path.realpath(Path(path).expanduser()))
        make_folder(self.path.parent)
        with self._explained_errors(), FileLock(self.path.with_name(f".{self.path.name}.lock")):
            try:
                self._db = self._open()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                log.warning("the cache of replies is damaged: a new one is created, and %s", self._set_aside())
                self._db = self._open()
            self._opened = self.path.stat().st_ino

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
                    yield key, _from_json(row)

    def add(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Adds all replies or none; afterwards no kill of the process loses them."""
        written = [(key, _to_json(reply)) for key, reply in replies]
        rows = [(key, row, _checksum(key, row)) for key, row in written]
        with self._explained_errors(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        self._db.close()

    def _open(self) -> sqlite3.Connection:
        # A generator that holds the store may be closed by another thread than the one that started it.
        db = sqlite3.connect(self.path, timeout=LOCK_SECONDS, check_same_thread=False)
        try:
            is_new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            header = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            if not is_new and header != (APPLICATION_ID, FORMAT):
                problem = "not a cache of replies, or one of another version"
                raise UserError(problem, place=str(self.path), hint="choose another path for the cache")
            db.execute("PRAGMA journal_mode=WAL")  # readers do not block a writer
            db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last replies, a kill none
            if is_new:
                with db:
                    db.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, reply BLOB, checksum BLOB)")
                    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version={FORMAT}")
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, opened: int | None = None) -> str:
        """Renames the damaged file; returns the sentence that names the new place.

        Args:
            opened: The inode of the damaged file, in case another process has replaced it.
        """
        if opened is not None and self.path.exists() and self.path.stat().st_ino != opened:
            return "another process has replaced it"
        names = (f"{self.path}.damaged{number or ''}" for number in range(10**6))
        aside = next(name for name in names if not os.path.lexists(name))
        for suffix in ("", "-wal", "-shm"):  # the files of SQLite
            if os.path.lexists(f"{self.path}{suffix}"):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        return f"the old one is now {aside}"

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Turns SQLite's errors of the file and the disk into a `UserError` with a hint."""
        with disk_errors(self.path):
            try:
                yield
            except sqlite3.DatabaseError as error:
                kind = (error.sqlite_errorcode or 0) & 0xFF  # the primary code
                if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    problem = f"another process has locked the cache of replies for {LOCK_SECONDS:.0f} s"
                    hint = "wait for it, or choose another path"
                    raise UserError(problem, place=str(self.path), hint=hint) from error
                if _is_damage(error):
                    self._db.close()
                    problem = f"the cache of replies is damaged: {self._set_aside(self._opened)}"
                    hint = "run the same command again: it creates a new cache"
                    raise UserError(problem, place=str(self.path), hint=hint) from error
                if kind not in _SYSTEM_ERRORS:
                    raise
                number = _SYSTEM_ERRORS[kind]
                raise OSError(number, os.strerror(number), str(self.path)) from error


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return ((error.sqlite_errorcode or 0) & 0xFF) in _DAMAGED


def _checksum(key: bytes, row: bytes) -> bytes:
    return hashlib.blake2b(key + row, digest_size=8).digest()


def _to_json(reply: Reply) -> bytes:
    fields = [reply.texts, reply.finished, dict(reply.probabilities), reply.prompt_tokens, reply.new_tokens]
    return json.dumps(fields).encode()


def _from_json(row: bytes) -> Reply:
    texts, finished, probabilities, prompt_tokens, new_tokens = json.loads(row)
    counts = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
    return Reply(id="", texts=tuple(texts), finished=tuple(finished), probabilities=probabilities, **counts)
