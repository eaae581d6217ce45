"""The first minute: help that is quick, mistakes that are explained, exit codes that hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from faithkit.cli import explain, help_text
from faithkit.errors import UserError
from tests.running import ROOT, run

SCRIPTS = ("train.py", "evaluate.py", "export.py", "generate.py", "construct.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_short_and_loads_nothing_heavy(script: str) -> None:
    probe = f"import sys, runpy; sys.argv = ['{script}', '--help']\n"
    probe += f"try: runpy.run_path('{script}', run_name='__main__')\nexcept SystemExit: pass\n"
    probe += "print(sorted({'torch', 'transformers', 'hydra', 'omegaconf'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
    assert 8 <= len(done.stdout.splitlines()) <= 60
    assert done.stdout.count(f"faithkit {Path(script).stem}") >= 2


@pytest.mark.parametrize(
    ("command", "told", "code"),
    [("train.py --help", b"", 0), ("-m faithkit models", b"stopped: the reader of standard output has ended\n", 141)],
)
def test_a_command_ends_without_a_traceback_where_its_reader_has_gone(command: str, told: bytes, code: int) -> None:
    started = subprocess.Popen([sys.executable, *command.split()], cwd=ROOT, stdout=-1, stderr=-1)
    assert started.stdout and started.stderr
    started.stdout.close()
    assert (started.stderr.read(), started.wait()) == (told, code)


def test_help_lists_the_choices_that_the_folders_have_and_the_keys_with_their_defaults() -> None:
    text = help_text("What it does.", ("data", "trainer"), "train")
    assert "faithcritic" in text and "fsdp" in text and "_base" not in text
    assert "checkpoints=best" in text and "resume=null" in text and "hydra" not in text


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run("train.py", "debug=true", "data=begin", "data.path=/nowhere", f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 2 and "Traceback" in done.stderr and "error:" in done.stderr


def test_a_full_disk_and_no_permission_are_explained() -> None:
    full, forbidden = OSError(28, "No space left on device"), PermissionError(13, "Permission denied")
    full.filename = forbidden.filename = "runs/x/last.ckpt"
    assert "no space" in (explain(full) or "") and "last.ckpt" in (explain(full) or "")
    assert "permission" in (explain(forbidden) or "")


def test_a_mistake_of_ours_is_not_dressed_up_as_the_users() -> None:
    assert explain(ValueError("ours")) is None
    assert explain(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert len((explain(UserError("a\nb\nc\nd\ne\nf")) or "").splitlines()) == 5
    lost = "[/__w/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"
    message = explain(RuntimeError(lost))
    assert message is not None and "resume=" in message and "trainer.timeout_seconds" in message
