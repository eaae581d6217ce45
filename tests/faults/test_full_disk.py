"""A full disk ends every script with an explanation; with room again, the run is resumed to the same results."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.forked import run_forked
from tests.faults.kills import Undisturbed, results

pytestmark = pytest.mark.xdist_group("undisturbed")
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
def test_a_full_disk(name: str, commands: dict[str, Undisturbed], disk: Path, tmp_path: Path) -> None:
    whole, run, folder = commands[name], disk / "run", tmp_path / "folder"
    first = (f"run_dir={run}", *whole.command.overrides)
    for kilobytes in SIZES[name]:
        resize(disk, kilobytes)
        arguments = (f"resume={run}",) if (run / "config.yaml").exists() else first
        code, said = run_forked(name, *arguments, folder=folder)
        assert code == 2 and explained(said), f"{kilobytes} kB, exit code {code}\n{said}"
    resize(disk, 16_000)
    code, said = run_forked(name, f"resume={run}", folder=folder)
    assert code == 0, said
    assert results(run) == whole.results


def test_a_full_disk_for_an_export(commands: dict[str, Undisturbed], disk: Path, tmp_path: Path) -> None:
    trained = commands["evaluate"].command.overrides[0]  # checkpoint=...
    folder = tmp_path / "folder"
    for kilobytes in (4, 60, 130):
        resize(disk, kilobytes)
        code, said = run_forked("export", trained, f"output_dir={disk / 'out'}", folder=folder)
        assert code == 2 and explained(said), f"{kilobytes} kB, exit code {code}\n{said}"
        assert not list(disk.iterdir()), "what it wrote is gone"
    resize(disk, 16_000)
    code, said = run_forked("export", trained, f"output_dir={disk / 'out'}", folder=folder)
    assert code == 0 and (disk / "out" / "README.md").exists(), said


def test_a_full_disk_for_scores(commands: dict[str, Undisturbed], disk: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("knowledge,response\n" + "".join(f"the river is {n},it is long\n" for n in range(40)))
    options = (commands["evaluate"].command.overrides[0], f"path={rows}", "num_resamples=5")
    folder, run = tmp_path / "folder", disk / "run"
    for kilobytes in (4, 8):
        resize(disk, kilobytes)
        first = (f"resume={run}",) if (run / "config.yaml").exists() else (f"run_dir={run}", *options)
        code, said = run_forked("score", *first, folder=folder)
        assert code == 2 and explained(said), f"{kilobytes} kB, exit code {code}\n{said}"
    resize(disk, 16_000)
    code, said = run_forked("score", f"resume={run}", folder=folder)
    assert code == 0, said
    assert len((run / "rows.scored.csv").read_text().splitlines()) == 41
