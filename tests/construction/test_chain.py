"""A chain makes each row once, in its own place, whatever fails or is killed in between."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from construction.chain import MANIFEST, Chain
from construction.steps import FAILURE, KEY, Division, Step, is_failed
from data_modules.splits import divide_groups
from faithkit.errors import UserError
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import Decoding, Form, Reply, Request
from faithkit.inference.text_engines import CachedEngine
from faithkit.provenance.row_keys import group_hash
from tests.construction.steps import PROMPT, chain, keys, rows
from tests.faithkit.inference.counting_engine import CountingEngine
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import ROOT


class Backwards(CountingEngine):
    """Answers a portion from its end, and says bad things of some."""

    def __init__(self, *args: Any, bad: Sequence[str] = (), **options: Any):
        super().__init__(*args, **options)
        self.bad = bad

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        for reply in super().generate(requests[::-1], decoding, form):
            yield replace(reply, texts=("bad",)) if reply.id in self.bad else reply


def engines(**options: Any) -> list[Backwards]:
    return [Backwards("first", **options), Backwards("second")]


def manifest(folder: Path) -> dict[str, Any]:
    stored = json.loads((folder / MANIFEST).read_text())
    return {step["name"]: step for step in stored["steps"]}


def contents(made: Chain) -> dict[str, bytes]:
    return {name: made.path(name).read_bytes() for name in made.steps}


def test_rows_keep_their_order_and_their_keys_whatever_order_replies_come_in(tmp_path: Path) -> None:
    made = chain(tmp_path, engines())
    made.run()
    assert keys(made.rows("branch-0")) == keys(made.rows("inputs")) == [str(i) for i in range(10)]
    assert [row["branch-0"] for row in made.rows("branch-0")] == [f"Say it again: text {i}!" for i in range(10)]
    assert keys(made.rows("last")) == [f"{i}@b{place}" for i in range(10) for place in (0, 1)]
    assert all(row["text"] == f"text {row[KEY].partition('@')[0]}" for row in made.rows("last"))


def test_a_failed_row_is_replaced_by_a_failed_row_and_shifts_no_other(tmp_path: Path) -> None:
    made = chain(tmp_path, engines(fails=["3"], bad=["5"]))
    made.run()
    found = {row[KEY]: row for row in made.rows("last")}
    assert [key for key, row in found.items() if is_failed(row)] == ["3@b0", "5@b0"]
    assert found["3@b0"][FAILURE] == {"step": "branch-0", "why": "no reply", "detail": "it failed", "tries": 1}
    assert found["4@b0"]["branch-0"] == "Say it again: text 4!" and found["3@b1"]["branch-1"] == "Say it again: text 3!"
    counted = {"branch-0: no reply": 1, "branch-0: refusal": 1}
    assert manifest(tmp_path)["branch-0"]["failures"] == counted == manifest(tmp_path)["last"]["failures"]


@pytest.mark.parametrize("stop", range(0, 21, 3))
def test_an_interrupted_chain_goes_on_where_it_was_without_asking_twice(stop: int, tmp_path: Path) -> None:
    whole = chain(tmp_path / "whole", engines())
    whole.run()
    asked: list[str] = []
    for stops_after in (stop, 10**9):
        counting = Backwards("first", stops_after=stops_after)
        cached = [CachedEngine(counting, tmp_path / "c"), CachedEngine(Backwards("second"), tmp_path / "c")]
        made = chain(tmp_path / "run", cached, chunk_size=20, number=10)
        if stops_after < 10:
            with pytest.raises(UserError, match="refused"):
                made.run()
        else:
            made.run()
        asked += counting.asked
    assert sorted(asked) == sorted(map(str, range(10)))
    assert contents(made) == contents(whole)


def test_a_row_that_was_half_written_is_made_again(tmp_path: Path) -> None:
    made = chain(tmp_path, engines())
    made.run()
    before, path = contents(made), made.path("branch-1")
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:5]) + b'{"key": "5", "te')
    stored = json.loads((tmp_path / MANIFEST).read_text())
    next(step for step in stored["steps"] if step["name"] == "branch-1")["state"] = "running"
    stored["steps"] = stored["steps"][:3]
    (tmp_path / MANIFEST).write_text(json.dumps(stored))
    again = engines()
    chain(tmp_path, again).run()
    assert contents(made) == before and sorted(again[1].asked) == ["5", "6", "7", "8", "9"] and not again[0].asked


def test_a_changed_step_makes_itself_and_what_follows_again_and_nothing_before(tmp_path: Path) -> None:
    chain(tmp_path, engines()).run()
    before, again = manifest(tmp_path), engines()
    other = TextPrompt("Once more: {text}", ("text",), name="again")
    made = chain(tmp_path, again, prompts=(PROMPT, other))
    made.run()
    after = manifest(tmp_path)
    changed = {name for name in after if after[name]["rows_id"] != before[name]["rows_id"]}
    assert changed == {"branch-1", "last"} and (len(again[0].asked), len(again[1].asked)) == (0, 10)
    assert next(row for row in made.rows("last") if row[KEY] == "0@b1")["branch-1"] == "Once more: text 0!"


def test_only_failed_rows_are_asked_again_and_later_steps_follow(tmp_path: Path) -> None:
    made = chain(tmp_path, engines(fails=["3"], bad=["5"]))
    made.run()
    kept = [line for line in made.path("last").read_bytes().splitlines() if b"failure" not in line]
    again = engines(bad=["5#1"])
    made = chain(tmp_path, again)
    made.run(retry_failed=True)
    assert again[0].asked == ["3#1", "5#1"] and again[1].asked == []
    found = {row[KEY]: row for row in made.rows("last")}
    assert found["3@b0"]["size"] == len("Say it again: text 3!") and "tries" not in found["3@b0"]
    assert found["5@b0"][FAILURE]["tries"] == 2 and keys(made.rows("last"))[6:8] == ["3@b0", "3@b1"]
    assert set(kept) <= set(made.path("last").read_bytes().splitlines())


def test_steps_behind_follow_a_retry_that_was_killed_between_them(tmp_path: Path) -> None:
    made = chain(tmp_path, engines(fails=["3"]))
    made.run()
    made = chain(tmp_path, engines())
    made._repair(made.steps["branch-0"], made.manifest.steps["branch-0"], True)
    made = chain(tmp_path, engines())
    made.run()  # without retry_failed
    assert not any(map(is_failed, made.rows("last"))) and manifest(tmp_path)["last"]["failures"] == {}


def test_a_model_that_has_changed_makes_an_unfinished_step_anew(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="refused"):
        chain(tmp_path, engines(stops_after=2)).run()
    other = [Backwards("first, fine-tuned"), Backwards("second")]
    made = chain(tmp_path, other)
    made.run()
    assert len(other[0].asked) == 10 and manifest(tmp_path)["branch-0"]["engine"] == "first, fine-tuned"


def test_two_rows_with_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two rows have the key '1'"):
        chain(tmp_path, engines(), inputs=[*rows(3), {KEY: "1", "text": "x"}]).run()


def test_a_row_that_never_came_back_fails(tmp_path: Path) -> None:
    class Forgetful(Backwards):
        def generate(self, requests: Sequence[Request], *how: Any) -> Iterator[Reply]:
            yield from super().generate([one for one in requests if one.id != "2"], *how)

    made = chain(tmp_path, [Forgetful("first"), Backwards("second")])
    made.run()
    found = {row[KEY]: row for row in made.rows("branch-0")}
    assert found["2"][FAILURE]["why"] == "no row came back" and list(found) == [str(i) for i in range(10)]


@pytest.mark.parametrize("steps", [[{"name": "inputs"}], 3])
def test_a_damaged_manifest_is_explained(steps: object, tmp_path: Path) -> None:
    chain(tmp_path, engines()).run()
    path = tmp_path / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps": steps}))
    with pytest.raises(UserError, match="the manifest is damaged") as refused:
        chain(tmp_path, engines())
    assert refused.value.hint


def test_a_source_goes_on_behind_what_it_wrote(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from rows(1500)
        raise UserError("the disk is gone")

    with pytest.raises(UserError):
        Chain(tmp_path, "test", [Step(name="inputs", read=broken, settings={})]).run()
    made = Chain(tmp_path, "test", [Step(name="inputs", read=lambda: iter(rows(3000)), settings={})])
    made.run()
    assert keys(made.rows("inputs")) == [str(i) for i in range(3000)]


def test_a_model_that_is_no_longer_asked_leaves_no_rows(tmp_path: Path) -> None:
    chain(tmp_path, engines()).run()
    other = [Backwards("first")]
    made = chain(tmp_path, other, prompts=[PROMPT])
    made.run()
    files = {"01_inputs.jsonl", "02_branch-0.jsonl", "03_last.jsonl"}
    assert {path.name for path in (tmp_path / "steps").iterdir()} == files and other[0].asked == []
    assert keys(made.rows("last")) == [str(i) for i in range(10)]


SCRIPT = """
import sys
from tests.construction.test_chain import run_chain

run_chain(*sys.argv[1:])
"""
NUMBER, CONCURRENCY = 40, 4


def run_chain(folder: str, url: str) -> None:
    """Runs the chain in a folder, with two branches that ask the server."""
    options = ServerOptions(base_url=url, concurrency=CONCURRENCY)
    asked = [OpenAiEngine(name, options) for name in (MODEL, f"{MODEL} too")]
    engines = [CachedEngine(engine, f"{folder}/replies.sqlite") for engine in asked]
    chain(Path(folder), engines, number=NUMBER, chunk_size=16).run()


@pytest.mark.slow
def test_a_killed_chain_repeats_only_what_was_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with ChatServer(seconds=0.03, models=(MODEL, f"{MODEL} too")) as server:
        for asked_before in (13, 57):
            process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "run"), server.url], cwd=ROOT)
            while len(server.asked) < asked_before:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
        run_chain(str(tmp_path / "run"), server.url)
        asked = [(body["model"], body["messages"][-1]["content"]) for body in server.asked]
        run_chain(str(tmp_path / "whole"), server.url)
    assert len(set(asked)) == 2 * NUMBER and len(asked) <= 2 * NUMBER + 2 * CONCURRENCY
    files = sorted((tmp_path / "whole" / "steps").iterdir())
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "run" / "steps" / file.name).read_bytes() == file.read_bytes()


def test_a_group_has_one_split_by_its_name_and_the_seed_alone() -> None:
    division = Division({"test": 0.4}, seed=3)
    splits = [division.split_of(str(group)) for group in range(2000)]
    assert splits == [Division({"test": 0.4}, seed=3).split_of(str(group)) for group in range(2000)]
    assert 0.36 < splits.count("test") / 2000 < 0.44


@pytest.mark.parametrize("seed", range(4))
def test_a_training_of_the_same_seed_finds_validation_rows_in_the_training_split(seed: int) -> None:
    division = Division({"test": 0.4}, seed)
    kept = [group for group in map(str, range(2000)) if division.split_of(group) == "train"]
    assert len(kept) == pytest.approx(1200, abs=100)
    hashes = np.array([group_hash(group) for group in kept], np.uint64)
    shares = divide_groups(hashes, {"validation": 0.1}, seed)
    assert len(shares["validation"]) == pytest.approx(120, abs=45)
