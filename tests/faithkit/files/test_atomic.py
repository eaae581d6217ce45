"""Files and folders that are complete or absent, whatever happens to their writer."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, atomic_folder, disk_errors, dumps, sync, write_text

WRITER = """
import sys, time
from faithkit.files.atomic import atomic_file, atomic_folder
with {form}(sys.argv[1]) as unfinished:
    {write}
    print("writing", flush=True)
    time.sleep(60)
"""
WRITES = {
    "atomic_file": "unfinished.write(b'half'); unfinished.flush()",
    "atomic_folder": "(unfinished / 'deep').mkdir(); (unfinished / 'deep' / 'half').touch()",
}


def start_writing(form: str, path: Path) -> subprocess.Popen:
    """Starts a process that writes until it is killed."""
    code = WRITER.format(form=form, write=WRITES[form])
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    return process


def write(form: str, path: Path) -> None:
    """Writes a whole file or folder."""
    if form == "atomic_file":
        write_text(path, "whole")
    else:
        with atomic_folder(path) as unfinished:
            (unfinished / "whole").touch()


@pytest.mark.parametrize("form", WRITES)
def test_the_next_writer_clears_what_a_killed_one_left_and_spares_a_living_one(form: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "thing"
    killed, living = start_writing(form, target), start_writing(form, target)
    try:
        assert not target.exists() and len(list(target.parent.iterdir())) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        write(form, target)
        assert target.exists() and len(list(target.parent.iterdir())) == 2
    finally:
        living.kill()
        living.wait()
    if form == "atomic_file":
        write(form, target)
        assert [path.name for path in target.parent.iterdir()] == ["thing"]


def test_a_folder_appears_whole_with_ordinary_permissions(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "folder") as unfinished:
        (unfinished / "file").write_text("text")
        assert not (tmp_path / "folder").exists()
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "folder" / "file").read_text() == "text"
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "plain"}


def test_a_failed_folder_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "folder", replace=True) as unfinished:
        (unfinished / "new").touch()
        raise KeyboardInterrupt
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_older_folder_gives_way_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with atomic_folder(tmp_path / "folder") as unfinished:  # an empty one is no loss
        (unfinished / "first").touch()
    with pytest.raises(FileExistsError), atomic_folder(tmp_path / "folder") as unfinished:
        (unfinished / "second").touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["first"]
    with atomic_folder(tmp_path / "folder", replace=True) as unfinished:
        (unfinished / "third").touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["third"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for name in ("first", "second"):
        with atomic_folder(tmp_path / "link", replace=True) as unfinished:
            (unfinished / name).touch()
    assert (tmp_path / "link").is_symlink() and [path.name for path in (tmp_path / "there").iterdir()] == ["second"]
    assert {path.name for path in tmp_path.iterdir()} == {"link", "there"}


def test_two_writers_in_one_process_do_not_meet(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "file") as first, atomic_file(tmp_path / "file") as second:
        first.write(b"first")
        second.write(b"second")
    assert (tmp_path / "file").read_bytes() == b"first"


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "no space left on the disk.*free some space"),
        (errno.EROFS, "not allowed to write here.*to another place"),
        (errno.EISDIR, "cannot be written.*choose another path"),
        (errno.EIO, "cannot be written.*check the disk"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_helps(number: int, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"(?s){says}"), disk_errors(tmp_path):
        raise OSError(number, "refused")
    with pytest.raises(BrokenPipeError), disk_errors(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "no matter of the disk")


def test_a_file_system_that_keeps_no_folders_back_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int) -> None:
        def fsync(handle: int) -> None:
            raise OSError(number, "refused")

        monkeypatch.setattr("os.fsync", fsync)

    refuse(errno.EINVAL)
    sync(tmp_path)
    refuse(errno.EIO)
    with pytest.raises(OSError, match="refused"):
        sync(tmp_path)


def test_json_is_readable_utf8_in_one_line_and_holds_no_nan() -> None:
    assert dumps({"name": "Zo\u00eb"}) == '{"name": "Zo\u00eb"}'
    for awkward in ("\u2028", "\x85", "\ud800"):
        assert dumps(f"\u00e9{awkward}").isascii() and json.loads(dumps(awkward)) == awkward
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(float("nan"))
