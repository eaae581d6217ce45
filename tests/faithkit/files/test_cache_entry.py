"""Entries of the cache: built once by one process, whole or absent, and built again where damaged."""

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files import cache as module
from faithkit.files.cache import CHECKSUMS, DamagedEntry, cache_dir, cache_entry
from tests.faults.processes import killed_after, race

TEXT = "rows of a corpus\n" * 50


class Entry:
    """An entry of two files, and how often it was built."""

    def __init__(self, folder: Path):
        self.folder, self.builds = folder, folder.parent / "builds.txt"

    def __call__(self) -> str:
        return cache_entry(self.folder, self.build, lambda folder: (folder / "deep" / "rows.txt").read_text())

    def build(self, folder: Path) -> None:
        with self.builds.open("a") as file:
            file.write("built\n")
        (folder / "deep").mkdir()
        (folder / "meta.json").write_text("{}")
        (folder / "deep" / "rows.txt").write_text(TEXT)

    @property
    def num_builds(self) -> int:
        return len(self.builds.read_text().splitlines())


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    return Entry(tmp_path / "entries" / "abc")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    (tmp_path / "entries").mkdir()


def test_the_first_entry_of_all_makes_the_folders_above_it(tmp_path: Path) -> None:
    entry = Entry(tmp_path / "not" / "yet" / "abc")
    entry.builds = tmp_path / "builds.txt"
    assert entry() == TEXT and entry.num_builds == 1


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def other_entry(folder: Path) -> None:
    other = Entry(folder.with_name("other"))
    other()
    shutil.rmtree(folder)
    other.folder.rename(folder)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a cut file": (lambda f: os.truncate(f / "deep" / "rows.txt", 20), "rows.txt' differs from what was written"),
    "an empty file": (lambda f: os.truncate(f / "meta.json", 0), "'meta.json' differs from what was written"),
    "a flipped bit": (lambda f: flip(f / "deep" / "rows.txt"), "rows.txt' differs from what was written"),
    "zeros of the same length": (lambda f: (f / "meta.json").write_bytes(bytes(2)), "'meta.json' differs from what"),
    "a missing file": (lambda f: (f / "meta.json").unlink(), "'meta.json' differs from what was written"),
    "a missing folder": (lambda f: shutil.rmtree(f / "deep"), "rows.txt' differs from what was written"),
    "a file too many": (lambda f: (f / "more.txt").write_text(""), "'more.txt' differs from what was written"),
    "a folder in a file's place": (lambda f: to_folder(f / "meta.json"), "'meta.json' differs from what was written"),
    "another entry": (other_entry, "it belongs to another entry"),
    "no list": (lambda f: (f / CHECKSUMS).unlink(), "it has no list of checksums"),
    "an empty list": (lambda f: os.truncate(f / CHECKSUMS, 0), "its list of checksums is damaged"),
    "a cut list": (lambda f: os.truncate(f / CHECKSUMS, 12), "its list of checksums is damaged"),
    "a list that is none": (lambda f: (f / CHECKSUMS).write_text("[5]"), "its list of checksums is damaged"),
    "a deep list": (lambda f: (f / CHECKSUMS).write_text("[" * 99_999), "its list of checksums is damaged"),
    "a file in its place": (lambda f: (shutil.rmtree(f), f.write_text("x")), "it has no list of checksums"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_made_again_and_said_so_once(
    entry: Entry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert entry() == entry() == TEXT
    assert entry.num_builds == 1
    damage, said = DAMAGE[name]
    damage(entry.folder)
    before = entry.num_builds
    with caplog.at_level(logging.INFO, "faithkit"):
        assert entry() == entry() == TEXT
    assert entry.num_builds == before + 1
    (line,) = caplog.messages
    assert f"{said}" in line and line.endswith("; building it again")
    assert {path.name for path in entry.folder.parent.iterdir()} <= {"abc", ".ab.lock", ".ot.lock", "builds.txt"}


def test_a_reader_may_find_damage_that_checksums_do_not_see(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file above the limit is checked by its size; what its reader finds counts."""
    monkeypatch.setattr(module, "CHECKED_BYTES", 100)

    def read(folder: Path) -> str:
        text = (folder / "deep" / "rows.txt").read_text()
        if text != TEXT:
            raise DamagedEntry("other rows")
        return text

    for _ in range(2):
        assert cache_entry(entry.folder, entry.build, read) == TEXT
    flip(entry.folder / "deep" / "rows.txt")
    assert cache_entry(entry.folder, entry.build, read) == TEXT
    assert entry.num_builds == 2
    os.truncate(entry.folder / "deep" / "rows.txt", 300)
    assert cache_entry(entry.folder, entry.build, read) == TEXT
    assert entry.num_builds == 3


def test_a_mistake_that_a_reader_finds_is_reported_and_nothing_is_built_again(entry: Entry) -> None:
    entry()

    def read(folder: Path) -> str:
        raise UserError("no such column", hint="name another")

    with pytest.raises(UserError, match="no such column"):
        cache_entry(entry.folder, entry.build, read)
    assert entry.num_builds == 1 and entry() == TEXT


def test_a_builder_that_cannot_build_what_its_reader_reads_does_not_go_round_for_ever(entry: Entry) -> None:
    def read(folder: Path) -> str:
        raise DamagedEntry("never right")

    with pytest.raises(DamagedEntry, match="never right"):
        cache_entry(entry.folder, entry.build, read)
    assert entry.num_builds == 1


@pytest.mark.parametrize("round_number", range(5))
@pytest.mark.parametrize("before", ["nothing", "damage"])
def test_three_processes_at_once_build_it_once(entry: Entry, before: str, round_number: int) -> None:
    if before == "damage":
        entry()
        flip(entry.folder / "meta.json")
    assert race(entry) == [TEXT] * 3
    assert entry.num_builds == (1 if before == "nothing" else 2)


@pytest.mark.slow
def test_a_build_that_is_killed_leaves_nothing_that_grows(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = 0
    for number in range(8):
        other = Entry(entry.folder.with_name(f"{number}"))
        build = other.build

        def slow(folder: Path, build: Callable[[Path], None] = build) -> None:
            build(folder)
            time.sleep(30)

        monkeypatch.setattr(other, "build", slow)
        killed += killed_after(0.15, other)
        assert not other.folder.exists()
    assert killed == 8
    assert len([path for path in entry.folder.parent.iterdir() if path.suffix == ".tmp"]) == 1
    assert entry() == TEXT
    assert not [path for path in entry.folder.parent.iterdir() if path.suffix == ".tmp"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        Entry(tmp_path / "file" / "entry")()
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be written: not a directory"):
        cache_dir("encodings")
