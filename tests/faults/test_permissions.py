"""Files and folders of other users, which a script may not read or write: an explanation with the path."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kills import Undisturbed, Warm

pytestmark = [
    pytest.mark.xdist_group("warm"),
    pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user"),
]
OTHER_USER = 65534


def give_away(path: Path, mode: int) -> None:
    path.chmod(mode)
    os.chown(path, OTHER_USER, OTHER_USER)


# What belongs to another user, with its mode, and the command that meets it; {run} is a finished training.
CASES: dict[str, tuple[str, int, str, Callable[[Path], list[str]]]] = {
    "resume, config.yaml": ("config.yaml", 0o600, "train", lambda run: [f"resume={run}"]),
    "resume, last.ckpt": ("checkpoints/last.ckpt", 0o000, "train", lambda run: [f"resume={run}"]),
    "resume, best.ckpt": ("checkpoints/best.ckpt", 0o600, "train", lambda run: [f"resume={run}"]),
    "resume, checkpoints": ("checkpoints", 0o700, "train", lambda run: [f"resume={run}"]),
    "resume, the folder": (".", 0o700, "train", lambda run: [f"resume={run}"]),
    "export, best.ckpt": (
        "checkpoints/best.ckpt",
        0o600,
        "export",
        lambda run: [f"checkpoint={run}", f"output_dir={run.parent / 'out'}"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_another_users(name: str, warm: Warm, commands: dict[str, Undisturbed], tmp_path: Path) -> None:
    target, mode, script, overrides = CASES[name]
    trained = Path(commands["evaluate"].command.overrides[0].partition("=")[2])
    run, folder = tmp_path / "run", tmp_path / "folder"
    shutil.copytree(trained, run)
    give_away(run / target, mode)
    code, _ = warm.run(script, *overrides(run), folder=folder, is_plain_user=True)
    said = (folder / "output.txt").read_text()
    assert code == 2 and "Traceback" not in said, f"exit code {code}\n{said}"
    assert "permission" in said.lower() or "not allowed" in said, said
    assert str(run) in said and "hint: " in said, said


def test_a_run_folder_in_another_users_folder(warm: Warm, commands: dict[str, Undisturbed], tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    give_away(tmp_path / "theirs", 0o755)
    options = commands["train"].command.overrides
    run = tmp_path / "theirs" / "run"
    code, _ = warm.run("train", f"run_dir={run}", *options, folder=tmp_path / "folder", is_plain_user=True)
    said = (tmp_path / "folder" / "output.txt").read_text()
    assert code == 2 and "not allowed to write here" in said and "Traceback" not in said, said
