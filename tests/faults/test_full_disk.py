"""A full disk ends every script with an explanation; with room again, the run is resumed to the same results."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kills import Undisturbed, Warm, results

pytestmark = pytest.mark.xdist_group("warm")
MOUNT = ("mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of one page."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run([*MOUNT, str(folder)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def explained(text: str) -> bool:
    """Tells whether the last lines explain a full disk, and nothing else is said in Python's words."""
    lines = text.splitlines()
    begin = max((n for n, line in enumerate(lines) if line.startswith("error: ")), default=len(lines))
    last = "\n".join(lines[begin:])
    is_explained = "no space left" in last and "hint: " in last and len(lines) - begin <= 5
    return is_explained and not any(word in text for word in ("Traceback", "Logging error", "Exception"))


# Kilobytes of the disk: the run's folder itself, its configuration, a checkpoint, hf/ and predictions fit or do not.
SIZES = {"train": (4, 16, 64, 160, 400), "evaluate": (4, 8, 16), "generate": (4, 8)}


@pytest.mark.parametrize("name", SIZES)
def test_a_full_disk(name: str, warm: Warm, commands: dict[str, Undisturbed], disk: Path, tmp_path: Path) -> None:
    whole, run, folder = commands[name], disk / "run", tmp_path / "folder"
    first = (f"run_dir={run}", *whole.command.overrides)
    for kilobytes in SIZES[name]:
        resize(disk, kilobytes)
        arguments = (f"resume={run}",) if (run / "config.yaml").exists() else first
        (folder / "output.txt").unlink(missing_ok=True)
        code, _ = warm.run(name, *arguments, folder=folder)
        said = (folder / "output.txt").read_text()
        assert code == 2 and explained(said), f"{kilobytes} kB, exit code {code}\n{said}"
    resize(disk, 16_000)
    code, _ = warm.run(name, f"resume={run}", folder=folder)
    assert code == 0, (folder / "output.txt").read_text()
    assert results(run) == whole.results
