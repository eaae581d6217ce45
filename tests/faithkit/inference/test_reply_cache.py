"""Equal requests are known, others are asked for; the file is shared, and replies come back whole after any damage."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import Decoding, Form, Message, Reply, Request
from faithkit.inference.text_engines import CachedEngine, ReplyStore
from tests.faithkit.inference.asking import GREEDY, ask
from tests.faithkit.inference.counting_engine import SILENT, UNABLE, CountingEngine
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import ROOT

NUCLEUS = Decoding(strategy="nucleus", num_samples=2)
YES_NO = ("Yes", "No")


def test_a_known_reply_is_not_asked_for_again(path: Path) -> None:
    engine = CountingEngine()
    first = CachedEngine(engine, path)
    assert first.identity == "model"
    expected = list(first.generate(ask("a", "b"), GREEDY))
    second = CachedEngine(engine, path)
    replies = list(second.generate(ask("c", "b", "a"), GREEDY))
    assert engine.asked == ["a", "b", "c"]
    assert {reply.id for reply in replies[:2]} == {"a", "b"} and replies[2].id == "c"
    assert sorted(replies[:2], key=lambda r: r.id) == expected
    assert (first.known, first.asked, second.known, second.asked) == (0, 2, 2, 1)


@pytest.mark.parametrize(
    ("again", "is_known"),
    [
        (lambda engine: engine.generate(ask("a"), GREEDY), True),
        (lambda engine: engine.generate([Request("other id", ask("a")[0].messages)], GREEDY), True),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, seed=3, top_p=0.5, temperature=2.0)), True),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form()), True),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, max_new_tokens=6)), False),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, repetition_penalty=1.1)), False),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form(choices=YES_NO)), False),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form(schema={"type": "object"})), False),
        (lambda engine: engine.generate([Request("a", (Message("system", "a"),))], GREEDY), False),
        (lambda engine: engine.generate(ask("a"), replace(NUCLEUS, max_new_tokens=5)), False),
        (lambda engine: engine.weigh(ask("a"), YES_NO), False),
    ],
)
def test_equal_requests_are_known_and_others_are_not(path: Path, again: Any, is_known: bool) -> None:
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask("a"), GREEDY))
    list(again(CachedEngine(engine, path)))
    assert (len(engine.asked) == 1) is is_known


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"top_p": 0.5}, {"temperature": 0.5}, {"num_samples": 3}, {"max_new_tokens": 7}]
)
def test_samples_are_known_by_every_setting_the_requests_id_and_the_model(path: Path, change: dict[str, Any]) -> None:
    engine, other = CountingEngine(), CountingEngine("another")
    messages = ask("a")[0].messages
    for decoding in (NUCLEUS, NUCLEUS, replace(NUCLEUS, **change)):
        list(CachedEngine(engine, path).generate([Request("1", messages)], decoding))
    list(CachedEngine(engine, path).generate([Request("2", messages)], NUCLEUS))
    list(CachedEngine(other, path).generate([Request("1", messages)], NUCLEUS))
    assert engine.asked == ["1", "1", "2"] and other.asked == ["1"]


def test_equal_requests_of_a_call_are_asked_once(path: Path) -> None:
    engine = CountingEngine(fails=["bad"])
    same = [Request(str(i), ask("a")[0].messages) for i in range(3)]
    bad = [Request("bad", ask("b")[0].messages), Request("worse", ask("b")[0].messages)]
    cached = CachedEngine(engine, path)
    replies = {reply.id: reply for reply in cached.generate([*same, *bad], GREEDY)}
    assert engine.asked == ["0", "bad"] and (cached.known, cached.asked) == (3, 2)
    assert {replies[str(i)].texts for i in range(3)} == {("a!",)} and replies["worse"].problem == "it failed"


def test_probabilities_are_remembered_whatever_the_order_of_the_choices(path: Path) -> None:
    engine = CountingEngine()
    (first,) = CachedEngine(engine, path).weigh(ask("a"), YES_NO)
    (again,) = CachedEngine(engine, path).weigh(ask("a"), YES_NO[::-1])
    list(CachedEngine(engine, path).weigh(ask("a"), ("Yes", "Maybe")))
    assert first == again and first.prompt_tokens == 7 and engine.asked == ["a", "a"]


def test_a_problem_is_forgotten_and_so_is_what_nobody_was_asked(path: Path) -> None:
    failing, unable, silent = CountingEngine(fails=["b"]), CountingEngine(UNABLE), CountingEngine(SILENT)
    for _ in range(2):
        assert [bool(reply.problem) for reply in CachedEngine(failing, path).generate(ask("b"), GREEDY)] == [True]
        for engine in (unable, silent):
            assert [dict(reply.probabilities) for reply in CachedEngine(engine, path).weigh(ask("a"), YES_NO)] == [{}]
    assert failing.asked == ["b", "b"] and unable.asked == ["a", "a"]
    assert silent.asked == ["a"], "an answer without probabilities is an answer: it is paid once"
    (reply,) = CachedEngine(CountingEngine(), path).generate(ask("b"), GREEDY)
    assert reply.texts == ("b!",)


@pytest.mark.parametrize("commit_every", [1, 4, 100])
def test_what_came_before_an_error_is_kept(path: Path, commit_every: int) -> None:
    failing = CachedEngine(CountingEngine(stops_after=6), path, commit_every=commit_every)
    with pytest.raises(UserError, match="the key is refused"):
        list(failing.generate(ask(*"abcdefgh"), GREEDY))
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask(*"abcdefgh"), GREEDY))
    assert engine.asked == ["g", "h"]


def test_thousands_are_found_in_one_call(path: Path) -> None:
    engine = CountingEngine()
    requests = ask(*map(str, range(2345)))
    list(CachedEngine(engine, path, commit_every=500).generate(requests, GREEDY))
    assert len(list(CachedEngine(engine, path).generate(requests, GREEDY))) == len(engine.asked) == 2345


TEXTS = st.text(st.characters(), max_size=20)  # surrogates among them


CHANCES = st.dictionaries(TEXTS, st.floats(0, 1), max_size=3)
REPLIES = st.tuples(st.lists(TEXTS, min_size=1, max_size=3), CHANCES, st.integers(0, 2**60))


@settings(max_examples=25)
@given(st.lists(REPLIES, max_size=10))
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


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: bytes(100) + content[100:],
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + b"\xff" * (len(content) - 8192) + content[-4096:],
        lambda content: b"not a database" * 99,
    ],
)
def test_a_damaged_file_is_refused_and_made_anew_once_it_is_deleted(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    fill(path)
    path.write_bytes(damage(path.read_bytes()))
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


def test_a_database_of_someone_else_and_one_that_another_process_holds_are_left_alone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    with closing(sqlite3.connect(theirs)) as db, db:
        db.execute("CREATE TABLE mine (x)")
    before = theirs.read_bytes()
    with pytest.raises(UserError, match="not a cache of replies") as caught:
        fill(theirs, 1)
    assert "another path" in (caught.value.hint or "") and theirs.read_bytes() == before
    monkeypatch.setattr("faithkit.inference.text_engines.LOCK_SECONDS", 0.1)
    fill(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="another process has locked the cache"):
            fill(path, 2)


FULL = """
import resource, signal, sys
sys.path.insert(0, ".")
from faithkit.errors import UserError
from faithkit.inference.text_engines import CachedEngine
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
        engine = OpenAiEngine(MODEL, ServerOptions(base_url=server.url))
        list(CachedEngine(engine, path).generate(ask("private"), GREEDY))
        written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"sk-secret" not in written and server.url.encode() not in written


NUMBER = 60


def ask_all(url: str, path: str) -> tuple[int, int]:
    """Asks a server through a cache; gives how many replies were known, and how many were asked for."""
    engine = CachedEngine(OpenAiEngine(MODEL, ServerOptions(base_url=url, concurrency=4)), path)
    replies = list(engine.generate(ask(*map(str, range(NUMBER))), GREEDY))
    assert {reply.id: reply.texts for reply in replies} == {str(i): (str(i),) for i in range(NUMBER)}
    return engine.known, engine.asked


def test_two_processes_share_a_file(path: Path) -> None:
    script = "import sys; from tests.faithkit.inference.test_reply_cache import ask_all; print(*ask_all(*sys.argv[1:]))"
    with ChatServer(seconds=0.02) as server:
        command = [sys.executable, "-c", script, server.url, str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not server.asked:
            assert process.poll() is None
            time.sleep(0.002)
        assert sum(ask_all(server.url, str(path))) == NUMBER
        out, err = process.communicate(timeout=60)
        assert sum(map(int, out.split())) == NUMBER and not err
        assert ask_all(server.url, str(path)) == (NUMBER, 0)
