"""Replies of models on the disk: a SQLite file that outlives a kill at any point and that processes may share.

Of a request there is only the hash of its key: neither its messages nor anything about a server is in the file.
Processes share it on one machine; over a network file system they should not.
"""

import errno
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors, make_folder
from faithkit.inference.text import Reply

log = logging.getLogger(__name__)
APPLICATION, FORMAT = 0x666B7270, 1  # in the file's header: it is ours, and how it is laid out
PATIENCE = 60.0  # seconds to wait while another process writes
AT_ONCE = 500  # keys that one query looks for
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SYSTEM_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EPERM,
}
Outcome = TypeVar("Outcome")


class _Misplaced(sqlite3.DatabaseError):
    """A row that cannot be found though it was written: a damaged index, which SQLite does not notice."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class ReplyStore:
    """Finds and adds replies by key. A damaged file is set aside and made anew; a damaged row is as good as none.

    Args:
        path: The file; made where there is none.
    """

    def __init__(self, path: str | Path):
        self.path = Path(os.path.realpath(Path(path).expanduser()))
        make_folder(self.path.parent)
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        with self._explained(), self._lock:
            self._db = self._open_or_replace()

    def find(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, Reply]]:
        """Yields the keys that have a reply, with it."""
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            for key, reply, checksum in self._do(partial(_select, keys=some)):
                if checksum == _checksum(key, reply):
                    yield key, _read(reply)

    def add(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Adds replies, all of them or none; once it returns, no kill of the process loses them."""
        written = [(key, _write(reply)) for key, reply in replies]
        rows = [(key, reply, _checksum(key, reply)) for key, reply in written]

        def insert(db: sqlite3.Connection) -> None:
            with db:
                db.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", rows)
                for start in range(0, len(rows), AT_ONCE):
                    some = {key for key, _, _ in rows[start : start + AT_ONCE]}
                    if len(_select(db, list(some))) < len(some):
                        raise _Misplaced("what was written is not found")

        self._do(insert)

    def close(self) -> None:
        self._db.close()

    def _do(self, action: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        with self._explained():
            try:
                return action(self._db)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
            with self._lock:
                self._db.close()
                self._db = self._open_or_replace()
                try:
                    return action(self._db)  # another process has been here first
                except sqlite3.DatabaseError as error:
                    if not _is_damage(error):
                        raise
                self._db.close()
                self._set_aside()
                self._db = self._open()
            return action(self._db)

    def _open_or_replace(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        with ExitStack() as stack:
            # A generator that holds the store may be closed by another thread than the one that began it.
            db = stack.enter_context(closing(sqlite3.connect(self.path, timeout=PATIENCE, check_same_thread=False)))
            is_new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            header = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            if not is_new and header != (APPLICATION, FORMAT):
                problem = "this is no cache of replies, or one of another version"
                raise UserError(problem, place=str(self.path), hint="choose another path for the cache")
            db.execute("PRAGMA journal_mode=WAL")  # readers and a writer side by side
            db.execute("PRAGMA synchronous=NORMAL")  # a power cut may cost the last replies, a kill none
            if is_new:
                with db:
                    db.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, reply BLOB, checksum BLOB)")
                    db.execute(f"PRAGMA application_id={APPLICATION}")
                    db.execute(f"PRAGMA user_version={FORMAT}")
            stack.pop_all()  # it stays open
        return db

    def _set_aside(self) -> None:
        names = (f"{self.path}.damaged{number or ''}" for number in range(10**6))
        aside = next(name for name in names if not os.path.lexists(name))
        with disk_errors(self.path):
            for end in ("", "-wal", "-shm"):  # SQLite's own files beside it
                if os.path.lexists(f"{self.path}{end}"):
                    Path(f"{self.path}{end}").rename(f"{aside}{end}")
        log.warning("the cache of replies is damaged: it is begun anew, and the old one is now %s", aside)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Tells what the disk refuses as a `UserError` with a hint."""
        with disk_errors(self.path):
            try:
                yield
            except sqlite3.OperationalError as error:
                kind = (error.sqlite_errorcode or 0) & 0xFF  # the rest says more closely what went wrong
                if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    problem = f"another process has held the cache of replies for {PATIENCE:.0f} s"
                    raise UserError(
                        problem, place=str(self.path), hint="wait for it, or choose another path"
                    ) from error
                if kind not in _SYSTEM_ERRORS:
                    raise
                number = _SYSTEM_ERRORS[kind]
                raise OSError(number, os.strerror(number), str(self.path)) from error


def _select(db: sqlite3.Connection, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    marks = ",".join("?" * len(keys))
    return db.execute(f"SELECT key, reply, checksum FROM replies WHERE key IN ({marks})", keys).fetchall()


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return ((error.sqlite_errorcode or 0) & 0xFF) in _DAMAGED


def _checksum(key: bytes, reply: bytes) -> bytes:
    return hashlib.blake2b(key + reply, digest_size=8).digest()


def _write(reply: Reply) -> bytes:
    fields = [reply.texts, reply.finished, dict(reply.probabilities), reply.prompt_tokens, reply.new_tokens]
    return json.dumps(fields).encode()


def _read(written: bytes) -> Reply:
    texts, finished, probabilities, prompt_tokens, new_tokens = json.loads(written)
    return Reply(
        id="",
        texts=tuple(texts),
        finished=tuple(finished),
        probabilities=probabilities,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
    )
