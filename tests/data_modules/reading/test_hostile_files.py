"""What is no file: pipes, folders and devices in the place of files are refused, and never waited for."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.official_rows import CASES, make, read, write_case

EVERY = list(CASES)


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
