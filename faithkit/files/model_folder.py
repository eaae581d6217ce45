"""The `hf/` folder of a model of ours: plain Hugging Face files, and `faithkit.json` with what they do not hold.

`faithkit.json` (the sidecar) also holds the SHA-256 of all files, itself included; they are checked before the weights
are used (`faithkit.files.folder_check`). `config.json` is marked, so that a sidecar that is lost is missed.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from faithkit.checks import check_mapping, check_text, check_texts
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, dumps, write_json
from faithkit.files.hashes import hash_files
from faithkit.files.run_folder import RunFolder
from faithkit.files.strict_json import read_strict_json
from faithkit.words import VERSION as WORDS_VERSION

if TYPE_CHECKING:  # a folder is looked for before numpy is imported
    from faithkit.provenance.seen_rows import SeenRows

SIDECAR, CONFIG, CARD = "faithkit.json", "config.json", "README.md"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of a folder with adapters alone
MARK = "faithkit"  # the key of config.json that says whose folder it is
Settings = TypeVar("Settings")
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Everything beside the weights that is needed to use them as they were trained.

    Args:
        kind: The kind of the model (`faithkit.detector`).
        labels: Names of the classes; a generator has none.
        layout: How texts become sequences.
        thresholds: How logits become labels: thresholds and calibration.
        origin: Configuration, data and its fingerprint.
    """

    kind: str
    labels: list[str]
    layout: dict[str, Any]
    thresholds: dict[str, Any]
    origin: dict[str, Any]

    def __post_init__(self) -> None:
        check_text("kind", self.kind)
        check_texts("labels", self.labels)
        for name in ("layout", "thresholds", "origin"):
            check_mapping(name, getattr(self, name))


def write_folder(folder: Path, model: Any, tokenizer: Any, sidecar: Sidecar, seen: "SeenRows | None" = None) -> None:
    """Writes weights as safetensors, tokenizer, seen rows and sidecar; an older folder is replaced whole."""

    def fill(unfinished: Path) -> None:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)

    write_sealed(folder, fill, sidecar, seen)


def write_sealed(folder: Path, fill: Callable[[Path], None], sidecar: Sidecar, seen: "SeenRows | None" = None) -> None:
    """Writes a folder of ours: what `fill` puts into it, seen rows, and the sidecar with the hashes of all files."""
    from faithkit.environment import environment

    stored = {name: getattr(sidecar, name) for name in Sidecar.__slots__}
    with atomic_folder(folder, replace=True) as unfinished:
        fill(unfinished)
        if seen is not None:
            seen.write(unfinished)
        seal(unfinished, {**stored, "versions": {**environment(), "words": WORDS_VERSION}})


def seal(folder: Path, stored: Mapping[str, Any]) -> None:
    """Marks config.json, and writes the sidecar with the hashes of all files; a model card is nobody's input.

    That of adapters stays as it is: peft warns of a key that is not its own.
    """
    if _has_config(folder):
        config = read_strict_json(folder / CONFIG, hint="write the model again")
        write_json(folder / CONFIG, {**config, MARK: {"kind": stored["kind"], "sidecar": SIDECAR}})
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in (SIDECAR, CARD))
    hashes = hash_files(folder, names)
    plain = {name: value for name, value in stored.items() if name != "hashes"}
    write_json(folder / SIDECAR, {**plain, "hashes": {**hashes, SIDECAR: sidecar_hash({**plain, "hashes": hashes})}})


def sidecar_hash(stored: Mapping[str, Any]) -> str:
    """Hashes a sidecar's content, but for the hash of itself in it."""
    hashes = {name: value for name, value in stored["hashes"].items() if name != SIDECAR}
    return hashlib.sha256(dumps({**stored, "hashes": hashes}).encode()).hexdigest()


def find_folder(path: str) -> Path:
    """Finds the hf/ folder behind a path: of a run, or the folder itself, which may be one of adapters."""
    root = Path(path).expanduser()
    for candidate in (root, RunFolder(root).hf):
        if any((candidate / name).exists() for name in (CONFIG, SIDECAR, ADAPTER_CONFIG)):
            return candidate
    if not root.exists():
        raise UserError("no such run or folder", place=path, hint="give a run's folder, an hf/ folder or a hub name")
    if RunFolder(root).last.exists():
        raise UserError("this run has not finished", place=path, hint=f"faithkit train resume={path}")
    raise UserError("neither a run nor a Hugging Face folder", place=path, hint="it should hold hf/ or config.json")


def is_adapter(folder: Path) -> bool:
    """Tells a folder of adapters from one of a whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not _has_config(folder)


def mend_hint(folder: Path) -> str:
    """Says how a folder of ours is written again."""
    run = _run_of(folder)
    return f"faithkit train resume={run}   writes it again" if run else "export the run again, or copy the folder again"


def _run_of(folder: Path) -> Path | None:
    run = RunFolder(folder.parent)
    return run.path if folder.name in (run.hf.name, run.adapter.name) and run.config.exists() else None


def read_stored(folder: Path) -> dict[str, Any] | None:
    """Reads all that faithkit.json holds; None for a folder of someone else's.

    Raises:
        UserError: It is broken, or missing in a folder of ours.
    """
    path, hint = folder / SIDECAR, mend_hint(folder)
    if path.exists():
        stored = read_strict_json(path, hint=hint)
        if not isinstance(stored, dict):
            raise UserError("broken sidecar: no mapping of names to values", place=str(path), hint=hint)
        return stored
    config = read_strict_json(folder / CONFIG, hint="copy or download the folder again") if _has_config(folder) else {}
    if _run_of(folder) or (isinstance(config, dict) and MARK in config):
        problem = f"{SIDECAR} is missing: without it the model's thresholds and lengths are not known"
        raise UserError(problem, place=str(folder), hint=hint)
    return None


def _has_config(folder: Path) -> bool:
    return (folder / CONFIG).exists()


def read_sidecar(folder: Path) -> Sidecar | None:
    """Reads the sidecar; None for a folder of someone else's. The weights are not looked at."""
    stored = read_stored(folder)
    if stored is None:
        return None
    _check_words(stored, folder / SIDECAR)
    return parse(folder, lambda: Sidecar(**{name: stored[name] for name in Sidecar.__slots__}))


def sidecar_of(checkpoint: str | None) -> Sidecar | None:
    """Reads the sidecar of a run or folder on this machine; None for a hub name, and for a folder of someone else's."""
    if not checkpoint or not Path(checkpoint).expanduser().exists():
        return None
    return read_sidecar(find_folder(checkpoint))


def _check_words(stored: dict[str, Any], path: Path) -> None:
    """Warns of a model that was made with other rules for words than today's."""
    versions = stored.get("versions")
    made_with = versions.get("words", 1) if isinstance(versions, dict) else 1  # older sidecars are of version 1
    if made_with != WORDS_VERSION:
        fitted = "control features and a tagger's evidence were fitted on words"
        log.warning("%s: %s of version %s, now %s: train again", path, fitted, made_with, WORDS_VERSION)


def read_settings(folder: Path, kind: str, build: Callable[[Sidecar], Settings]) -> Settings | None:
    """Reads the settings of a model of this kind from its sidecar; None for a folder of someone else's.

    Raises:
        UserError: It is of another kind, or broken.
    """
    sidecar = read_sidecar(folder)
    if sidecar is None:
        return None
    if sidecar.kind != kind:
        hint = f"give the folder of a run of a {kind}"
        problem = f"a checkpoint of another kind: {sidecar.kind!r}, wanted {kind!r}"
        raise UserError(problem, place=str(folder / SIDECAR), hint=hint)
    return parse(folder, lambda: build(sidecar))


def parse(folder: Path, build: Callable[[], Settings]) -> Settings:
    """Builds settings from a sidecar, and explains one that is broken."""
    try:
        return build()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        problem = f"broken sidecar: {error.problem if isinstance(error, UserError) else lacks}"
        raise UserError(problem, place=str(folder / SIDECAR), hint=mend_hint(folder)) from error
