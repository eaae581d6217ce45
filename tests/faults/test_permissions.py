"""Files and folders of other users: each command says which one it may not read, enter or write."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from faithkit.cli import explain
from tests.faults.forked import run_forked

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def place(trained: Path) -> Iterator[Path]:
    """A folder with a run in it."""
    with TemporaryDirectory(prefix="faithkit-permissions-") as name:  # pytest's own folders are closed to others
        folder = Path(name)
        folder.chmod(0o777)
        shutil.copytree(trained, folder / "run")
        yield folder


@needs_root
@pytest.mark.parametrize(
    ("script", "closed", "arguments", "told"),
    [
        ("train", "run/config.yaml", ["resume=RUN"], "no permission to read|not allowed to write"),
        ("train", "run", ["resume=RUN"], "no permission to enter"),
        ("evaluate", "run", ["benchmark=embedded", "checkpoint=RUN", "run_dir=NEW"], "no permission to enter"),
        ("evaluate", "run/hf/config.json", ["benchmark=embedded", "checkpoint=RUN", "run_dir=NEW"], "read"),
        ("evaluate", "run/hf/faithkit.json", ["benchmark=embedded", "checkpoint=RUN", "run_dir=NEW"], "to read"),
        ("evaluate", "rows.csv", ["benchmark=begin", "benchmark.path=ROWS", "run_dir=NEW", "predictions=ROWS"], "read"),
        ("export", "run/hf/faithkit.json", ["checkpoint=RUN", "output_dir=NEW"], "to read"),
        ("export", "run/checkpoints/best.ckpt", ["checkpoint=RUN", "output_dir=NEW"], "read"),
        ("score", "rows.csv", ["path=ROWS", "checkpoint=RUN", "run_dir=NEW"], "read"),
        ("train", "rows.csv", ["data=begin", "data.path=ROWS", "run_dir=NEW", "model.weights=RUN/hf"], "read"),
    ],
)
def test_what_may_not_be_read_is_named(
    script: str, closed: str, arguments: list[str], told: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(place / "home"))
    (place / "rows.csv").write_text("knowledge,response\na b,c d\n")
    path = place / closed
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(path, NOBODY, NOBODY)
    words = {"RUN": place / "run", "NEW": place / "new", "ROWS": place / "rows.csv"}
    given = []
    for argument in arguments:
        for word, value in words.items():
            argument = argument.replace(word, str(value))
        given.append(argument)
    ended = run_forked(script, *given, powerless=True)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    message = ended.output[ended.output.index("error:") :]
    assert any(word in message for word in told.split("|")) and str(path) in message, message
    assert len(message.splitlines()) <= 5


def test_reading_is_told_from_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    error = PermissionError(13, "Permission denied", str(tmp_path / "file"))
    assert "no permission to write" in (explain(error) or "")
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.X_OK)
    assert "no permission to read" in (explain(error) or "") and "chmod o+r" in (explain(error) or "")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert f"no permission to enter {tmp_path}" in (explain(error) or "")
