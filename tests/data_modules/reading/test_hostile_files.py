"""Files that no corpus is: nested without end, of another encoding, devices, folders in the place of files."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data_modules.reading.rows import ReadReport, read_rows
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.datasets import test_cmu_dog
from tests.data_modules.official_rows import CASES, make, read, write_case

EVERY = list(CASES)
ROW = b'{"knowledge": "k", "response": "r"}\n'
COLUMNS: dict[str, str | None] = dict.fromkeys(("knowledge", "response", "history", "id", "group"))


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Ends what waits for ever."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def check_refused(work: Callable[[], object], match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        work()
    assert len(str(caught.value).splitlines()) <= 5


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


# A file's bytes, and the error; None: it is read.
HOSTILE: dict[str, tuple[bytes, str | None]] = {
    "deep lists": (b"[" * 10_000, "broken JSON"),
    "deep lists in a row": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}\n", "broken JSON"),
    "deep objects": (b'{"a":' * 10_000, "broken JSON"),
    "a number of 5,000 digits": (b'{"a": ' + b"9" * 5_000 + b"}\n", "broken JSON"),
    "UTF-16": (ROW.decode().encode("utf-16"), "not UTF-8 text: byte 0xff at position 1"),
    "blank lines": (b"\n \n\t\r\n\n", "the file has no data rows"),
    "nothing": (b"", "the file has no data rows"),
    "a byte order mark alone": (b"\xef\xbb\xbf", "the file has no data rows"),
    "zeros": (bytes(100), "broken JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + ROW, None),
    "CRLF": (ROW.replace(b"\n", b"\r\n") * 2, None),
    "a key given twice": (b'{"knowledge": 5, "knowledge": "k", "response": "r"}\n', None),
    "NaN in other fields": (b'{"knowledge": "k", "response": "r", "x": NaN, "y": -Infinity}\n', None),
    "half a surrogate pair": (b'{"knowledge": "\\ud800", "response": "r"}\n', None),  # refused when the text is read
    "a line without an end": (ROW.rstrip(), None),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_json_files_that_no_corpus_has(tmp_path: Path, name: str, suffix: str) -> None:
    data, match = HOSTILE[name]
    file = tmp_path / f"rows{suffix}"
    file.write_bytes(data)
    if match is None:
        assert all(row.values["response"] == "r" for row in read_rows(file, ReadReport()))
    else:
        check_refused(lambda: list(read_rows(file, ReadReport())), match)


@pytest.mark.parametrize("name", HOSTILE)
def test_predictions_files_that_no_run_writes(tmp_path: Path, name: str) -> None:
    (tmp_path / "p.jsonl").write_bytes(HOSTILE[name][0])
    check_refused(lambda: read_predictions(tmp_path / "p.jsonl"), "p.jsonl")


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize("data", [b"\n\n\n", b"", bytes(100), b"a\tb\n\n\n", b"\xff\xfea\x00"])
def test_tables_that_no_corpus_has(tmp_path: Path, suffix: str, data: bytes) -> None:
    (tmp_path / f"rows{suffix}").write_bytes(data)
    check_refused(lambda: list(read_rows(tmp_path / f"rows{suffix}", ReadReport())), "rows")


@pytest.mark.parametrize("name", EVERY)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    file = write_case(tmp_path / "corpus", name)
    for place in (file, *([] if name != "ragtruth" else [file.with_name("source_info.jsonl")])):
        whole = place.read_bytes()
        for odd in (os.mkfifo, os.mkdir, endless):
            place.unlink()
            odd(place)
            check_refused(lambda: read(make(name, file)), "no such file|here|no plain file|regular file|next to")
            check_refused(lambda: read(make(name, file.parent)), "here|no plain file|regular file|next to")
            place.rmdir() if place.is_dir() else place.unlink()
            place.write_bytes(whole)


@pytest.mark.parametrize("make_odd", [os.mkfifo, os.mkdir, endless])
def test_own_rows_and_predictions_are_plain_files(tmp_path: Path, make_odd: Callable[[Path], None]) -> None:
    make_odd(tmp_path / "rows.jsonl")
    file = str(tmp_path / "rows.jsonl")
    check_refused(lambda: open_user_table(file, COLUMNS, join="".join), "no plain file|not a regular file|a folder")
    check_refused(lambda: read_predictions(file), "not a regular file")


def test_a_document_that_is_a_folder_or_a_pipe_does_not_count(tmp_path: Path) -> None:
    folder = test_cmu_dog.corpus(tmp_path)
    (folder / "WikiData" / "a.json").mkdir()
    os.mkfifo(folder / "WikiData" / "b.json")
    assert len(read(make("cmu_dog", folder))[0]) == 3
