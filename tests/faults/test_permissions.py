"""Each command names the file of another user that it may not read, enter or write."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.processes import run_forked

pytestmark = pytest.mark.xdist_group("undisturbed")  # one process forks for all

OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
BENCHMARK = "benchmark=embedded checkpoint={run} run_dir={new}"


@pytest.fixture
def place(trained: Path) -> Iterator[Path]:
    """Copies a run to a folder that other users may enter; pytest's folders are closed to them."""
    with TemporaryDirectory(prefix="faithkit-permissions-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        shutil.copytree(trained, folder / "run")
        yield folder


@needs_root
@pytest.mark.parametrize(
    ("script", "closed", "line", "words"),
    [
        ("train", "run/config.yaml", "resume={run}", "no permission to read|not allowed to write"),
        ("train", "run", "resume={run}", "no permission to enter"),
        ("evaluate", "run", BENCHMARK, "no permission to enter"),
        ("evaluate", "run/hf/config.json", BENCHMARK, "read"),
        ("evaluate", "run/hf/faithkit.json", BENCHMARK, "to read"),
        ("evaluate", "rows.csv", "benchmark=begin benchmark.path={rows} run_dir={new} predictions={rows}", "read"),
        ("export", "run/checkpoints/best.ckpt", "checkpoint={run} output_dir={new}", "read"),
        ("score", "rows.csv", "path={rows} checkpoint={run} run_dir={new}", "read"),
        ("train", "rows.csv", "data=begin data.path={rows} run_dir={new} model.weights={run}/hf", "read"),
    ],
)
def test_a_file_that_may_not_be_read_is_named(
    script: str, closed: str, line: str, words: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(place / "home"))
    (place / "rows.csv").write_text("knowledge,response\na b,c d\n")
    path = place / closed
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(path, OTHER_USER, OTHER_USER)
    arguments = line.format(run=place / "run", new=place / "new", rows=place / "rows.csv").split()
    ended = run_forked(script, *arguments, is_powerless=True)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    message = ended.output[ended.output.index("error:") :]
    assert any(word in message for word in words.split("|")) and str(path) in message, message
    assert len(message.splitlines()) <= 5
