"""A model is not asked again for what it has said: not after a kill, not beside another process, not by accident."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.reply_store import ReplyStore
from faithkit.inference.request_cache import CachedEngine
from faithkit.inference.text import USER, Form, Message, Reply, Request
from tests.faithkit.inference.server import FAILED, MODEL, ChatServer, answering
from tests.running import ROOT

GREEDY = Decoding(max_new_tokens=5)
NUCLEUS = Decoding(strategy="nucleus", num_samples=2)
YES_NO = ("Yes", "No")


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
        chances = dict.fromkeys(choices, 1 / len(choices)) if self.identity != "mute" else {}
        return self._run(requests, lambda request: Reply(id=request.id, probabilities=chances, prompt_tokens=7))

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


def ask(*contents: str) -> list[Request]:
    return [Request(content, (Message(USER, content),)) for content in contents]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


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
def test_samples_are_known_by_every_setting(path: Path, change: dict[str, Any]) -> None:
    engine = CountingEngine()
    for decoding in (NUCLEUS, NUCLEUS, replace(NUCLEUS, **change)):
        list(CachedEngine(engine, path).generate(ask("a"), decoding))
    assert engine.asked == ["a", "a"]


def test_samples_belong_to_the_requests_id(path: Path) -> None:
    engine = CountingEngine()
    messages = ask("a")[0].messages
    assert (
        len(list(CachedEngine(engine, path).generate([Request("1", messages), Request("2", messages)], NUCLEUS))) == 2
    )
    assert engine.asked == ["1", "2"]


def test_another_model_is_asked_anew(path: Path) -> None:
    engines = [CountingEngine("one"), CountingEngine("two")]
    for engine in engines:
        list(CachedEngine(engine, path).generate(ask("a"), GREEDY))
    assert [engine.asked for engine in engines] == [["a"], ["a"]]


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


def test_a_problem_and_missing_probabilities_are_forgotten(path: Path) -> None:
    failing, mute = CountingEngine(fails=["b"]), CountingEngine("mute")
    for _ in range(2):
        assert [bool(reply.problem) for reply in CachedEngine(failing, path).generate(ask("b"), GREEDY)] == [True]
        list(CachedEngine(mute, path).weigh(ask("a"), YES_NO))
    assert failing.asked == ["b", "b"] and mute.asked == ["a", "a"]
    (reply,) = CachedEngine(CountingEngine(), path).generate(ask("b"), GREEDY)
    assert reply.texts == ("b!",)


@pytest.mark.parametrize("commit_every", [1, 4, 100])
def test_what_came_before_an_error_is_kept(path: Path, commit_every: int) -> None:
    with pytest.raises(UserError, match="the key is refused"):
        list(
            CachedEngine(CountingEngine(stops_after=6), path, commit_every=commit_every).generate(
                ask(*"abcdefgh"), GREEDY
            )
        )
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask(*"abcdefgh"), GREEDY))
    assert engine.asked == ["g", "h"]


def test_a_closed_iterator_closes_the_engine_and_keeps_its_batch(path: Path) -> None:
    engine = CountingEngine()
    replies = CachedEngine(engine, path, commit_every=100).generate(ask(*"abcdef"), GREEDY)
    assert [next(replies).id, next(replies).id] == ["a", "b"]
    replies.close()  # type: ignore[attr-defined]
    assert engine.closed
    again = CountingEngine()
    list(CachedEngine(again, path).generate(ask(*"abcdef"), GREEDY))
    assert again.asked == ["c", "d", "e", "f"]


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


def test_thousands_are_found_in_one_call(path: Path) -> None:
    engine = CountingEngine()
    requests = ask(*map(str, range(2345)))
    list(CachedEngine(engine, path, commit_every=500).generate(requests, GREEDY))
    assert len(list(CachedEngine(engine, path).generate(requests, GREEDY))) == len(engine.asked) == 2345


SCRIPT = """
import sys
from tests.faithkit.inference.test_request_cache import ask_all

print(*ask_all(*sys.argv[1:]))
"""
NUMBER = 60


def ask_all(url: str, path: str) -> tuple[int, int]:
    """Asks a server through a cache; gives how many replies were known, and how many were asked for."""
    engine = CachedEngine(OpenAiEngine(MODEL, base_url=url, concurrency=4), path)
    replies = list(engine.generate(ask(*map(str, range(NUMBER))), GREEDY))
    assert {reply.id: reply.texts for reply in replies} == {str(i): (str(i),) for i in range(NUMBER)}
    return engine.known, engine.asked


def start(server: ChatServer, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SCRIPT, server.url, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_run_goes_on_and_asks_only_what_was_in_flight(path: Path) -> None:
    with ChatServer(seconds=0.03) as server:
        for asked_before in (13, 37):
            process = start(server, path)
            while len(server.asked) < asked_before:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        known, asked = ask_all(server.url, str(path))
        counts = [server.contents.count(str(i)) for i in range(NUMBER)]
    assert known + asked == NUMBER and known >= 37 - 2 * 4
    assert min(counts) == 1 and sum(counts) <= NUMBER + 2 * 4  # what was open at a kill came twice, and nothing else
    assert ask_all(server.url, str(path)) == (NUMBER, 0)  # the server is gone: nothing is asked of it


def test_two_processes_share_a_file(path: Path) -> None:
    with ChatServer(seconds=0.02) as server:
        process = start(server, path)
        while not server.asked:
            assert process.poll() is None
            time.sleep(0.002)
        assert sum(ask_all(server.url, str(path))) == NUMBER
        out, err = process.communicate(timeout=60)
        assert sum(map(int, out.split())) == NUMBER and not err
        assert ask_all(server.url, str(path)) == (NUMBER, 0)


def test_threads_share_a_file(path: Path) -> None:
    problems: list[BaseException] = []

    def work(name: str) -> None:
        try:
            list(CachedEngine(CountingEngine(), path).generate(ask(*(f"{name}{i}" for i in range(50)), "same"), GREEDY))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask(*(f"{n}{i}" for n in "abcd" for i in range(50))), GREEDY))
    assert not problems and not engine.asked


def test_a_problem_of_the_server_is_asked_again_by_the_next_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with ChatServer(FAILED, answering()) as server:
        engine = OpenAiEngine(MODEL, base_url=server.url, max_retries=0, malformed_retries=0, concurrency=1)
        problems = [reply.problem for reply in CachedEngine(engine, path).generate(ask("a", "b", "c"), GREEDY)]
        assert [bool(problem) for problem in problems] == [True, True, False]
        again = CachedEngine(engine, path)
        assert all(reply.texts for reply in again.generate(ask("a", "b", "c"), GREEDY))
    assert (again.known, again.asked) == (1, 2)


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
def test_a_damaged_file_is_set_aside_and_made_anew(
    path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    for round_ in range(2):
        fill(path)
        damage(path)
        engine = CountingEngine()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="faithkit"):
            replies = list(CachedEngine(engine, path).generate(ask(*map(str, range(300))), GREEDY))
        assert {reply.id for reply in replies} == set(map(str, range(300))) and len(replies) == 300
        (said,) = [record.getMessage() for record in caplog.records]
        aside = Path(f"{path}.damaged{round_ or ''}")
        assert "is damaged" in said and str(aside) in said and aside.exists()
        again = CountingEngine()
        list(CachedEngine(again, path).generate(ask(*map(str, range(300))), GREEDY))
        assert not again.asked


def test_damage_is_mended_once_where_two_find_it(path: Path) -> None:
    fill(path)
    with closing(ReplyStore(path)) as one, closing(ReplyStore(path)) as two:
        write_over_the_middle(path)
        for store in (one, two):
            store.add([(bytes(32), Reply(id="", texts=("new",)))])
            assert [reply.texts for _, reply in store.find([bytes(32)])] == [("new",)]
    assert not Path(f"{path}.damaged1").exists()


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
    with pytest.raises(UserError, match="no cache of replies") as told:
        list(CachedEngine(CountingEngine(), path).generate(ask("a"), GREEDY))
    assert "another path" in (told.value.hint or "") and path.read_bytes() == before


def test_a_folder_as_path_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write") as told:
        list(CachedEngine(CountingEngine(), tmp_path).generate(ask("a"), GREEDY))
    assert told.value.place == str(tmp_path) and told.value.hint


def test_a_cache_that_another_process_holds_is_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faithkit.inference.reply_store.PATIENCE", 0.1)
    fill(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="another process has held the cache"):
            list(CachedEngine(CountingEngine(), path).generate(ask("new"), GREEDY))


FULL = """
import resource, signal, sys
sys.path.insert(0, ".")
from faithkit.errors import UserError
from tests.faithkit.inference.test_request_cache import CountingEngine, CachedEngine, GREEDY, ask

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
