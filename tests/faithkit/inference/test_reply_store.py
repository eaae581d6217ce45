"""The file of a cache: replies come back whole, damage is set aside, and what cannot be written is a clear error."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.reply_cache import CachedEngine, ReplyStore
from faithkit.inference.text import Reply
from tests.faithkit.inference.asking import GREEDY, ask
from tests.faithkit.inference.counting_engine import CountingEngine
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import ROOT

TEXTS = st.text(st.characters(), max_size=20)  # surrogates among them


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.lists(TEXTS, min_size=1, max_size=3),
            st.dictionaries(TEXTS, st.floats(0, 1), max_size=3),
            st.integers(0, 2**60),
        ),
        max_size=10,
    )
)
def test_every_reply_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, given_replies: list[Any]) -> None:
    replies = [
        Reply(id="", texts=tuple(t), finished=(True,) * len(t), probabilities=p, prompt_tokens=n, new_tokens=n)
        for t, p, n in given_replies
    ]
    rows = [(number.to_bytes(32), reply) for number, reply in enumerate(replies)]
    with closing(ReplyStore(tmp_path_factory.mktemp("store") / "replies")) as store:
        store.add(rows)
        assert sorted(store.find([key for key, _ in rows] + [b"unknown"]), key=lambda row: row[0]) == rows


def fill(path: Path, number: int = 300) -> None:
    list(CachedEngine(CountingEngine(), path, commit_every=100).generate(ask(*map(str, range(number))), GREEDY))


def zero_the_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(100))


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def write_over_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 8192))


@pytest.mark.parametrize(
    "damage", [zero_the_header, cut_in_half, write_over_the_middle, lambda path: path.write_text("not a database" * 99)]
)
def test_a_damaged_file_is_refused_and_made_anew_once_it_is_deleted(path: Path, damage: Callable[[Path], None]) -> None:
    fill(path)
    damage(path)
    engine = CountingEngine()
    requests = ask(*map(str, range(300)))
    with pytest.raises(UserError, match=r"the cache of replies is damaged(.|\n)*delete it") as caught:
        list(CachedEngine(engine, path).generate(requests, GREEDY))
    assert caught.value.place == str(path)
    path.unlink()
    assert len(list(CachedEngine(engine, path).generate(requests, GREEDY))) == 300


def test_a_row_with_a_flipped_bit_is_asked_for_again(path: Path) -> None:
    fill(path, 3)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE replies SET reply = CAST(replace(reply, '1!', '7!') AS BLOB)")
    engine = CountingEngine()
    replies = {r.id: r.texts for r in CachedEngine(engine, path).generate(ask("0", "1", "2"), GREEDY)}
    assert engine.asked == ["1"] and replies["1"] == ("1!",)
    list(CachedEngine(engine, path).generate(ask("0", "1", "2"), GREEDY))
    assert engine.asked == ["1"]


def test_a_database_of_someone_else_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(UserError, match="not a cache of replies") as caught:
        list(CachedEngine(CountingEngine(), path).generate(ask("a"), GREEDY))
    assert "another path" in (caught.value.hint or "") and path.read_bytes() == before


def test_a_cache_that_another_process_holds_is_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faithkit.inference.reply_cache.LOCK_SECONDS", 0.1)
    fill(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="another process has locked the cache"):
            list(CachedEngine(CountingEngine(), path).generate(ask("new"), GREEDY))


FULL = """
import resource, signal, sys
sys.path.insert(0, ".")
from faithkit.errors import UserError
from faithkit.inference.reply_cache import CachedEngine
from tests.faithkit.inference.asking import GREEDY, ask
from tests.faithkit.inference.counting_engine import CountingEngine

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    list(CachedEngine(CountingEngine(), sys.argv[1]).generate(ask(*(str(i) * 1000 for i in range(1000))), GREEDY))
except UserError as error:
    print(error)
    sys.exit(2)
"""


def test_a_full_disk_is_a_clear_error_and_what_was_written_stays(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "hint: " in done.stdout and str(path) in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask(*(str(i) * 1000 for i in range(1000))), GREEDY))
    assert 0 < len(engine.asked) < 1000


def test_nothing_secret_is_in_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret123456")
    with ChatServer() as server:
        list(CachedEngine(OpenAiEngine(MODEL, base_url=server.url), path).generate(ask("private"), GREEDY))
        written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"sk-secret" not in written and server.url.encode() not in written
