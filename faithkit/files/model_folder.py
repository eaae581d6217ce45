"""The `hf/` folder of a model of ours: plain Hugging Face files, and `faithkit.json` with what they do not hold.

`faithkit.json` (the sidecar) also holds the SHA-256 of all files, itself included; they are checked before the weights
are used (`faithkit.files.model_folder`). `config.json` is marked, so that a sidecar that is lost is missed.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from faithkit.checks import check_mapping, check_text, check_texts
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import atomic_folder, dumps, write_json
from faithkit.files.hashes import hash_files
from faithkit.files.jsonl import read_strict_json
from faithkit.files.run_folder import RunFolder
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


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
# Files that transformers reads where it finds them: none may appear beside those that were written.
READ = re.compile(r".*\.(safetensors|bin|pt|pth|h5|msgpack|gguf|json|jinja|model|spm|py)|vocab\.txt|merges\.txt")
# What is read as JSON; tokenizer.json is left to its own parser, which is strict, and fast on megabytes.
SMALL_JSON = (CONFIG, "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Counts in config.json from which transformers builds lists, and more than any model has of them.
COUNTS = re.compile(r".*(layer|label|expert|group).*")
MAX_COUNT = 2000
SIZES = re.compile(r"num_.*heads|n_heads?|n_embd|hidden_size|intermediate_size|vocab_size|head_dim|d_(model|kv|ff)")

log = logging.getLogger("faithkit")
_told: set[Path] = set()  # folders without hashes of which it was said


def check_folder(folder: Path) -> None:
    """Checks a model's folder: no file is empty or broken, and those of ours are the ones that were written.

    Raises:
        UserError: It names the file.
    """
    stored = read_stored(folder)
    hint = "copy or download the folder again" if stored is None else mend_hint(folder)
    _check_present(folder, stored, hint)
    if stored is not None and _is_sealed(folder, stored, hint):
        _check_hashes(folder, stored, hint)
        return
    for name in SMALL_JSON:
        if (folder / name).exists() and not isinstance(read_strict_json(folder / name, hint=hint), dict):
            raise UserError("no mapping of names to values", place=str(folder / name), hint=hint)
    if (folder / CONFIG).exists():
        check_config(read_strict_json(folder / CONFIG, hint=hint), str(folder), hint=hint)
    if stored is not None and folder not in _told:
        _told.add(folder)
        log.warning(
            "%s: written before %s held hashes, so its files cannot be checked; an export has them", folder, SIDECAR
        )


def check_config(stored: Mapping[str, Any], place: str, *, hint: str) -> None:
    """Refuses a config.json with numbers that no model has or that would take all memory, or no list of classes."""
    for key, value in stored.items():
        if isinstance(value, Mapping):
            check_config(value, place, hint=hint)
            continue
        is_number = isinstance(value, (int, float))
        too_many = is_number and COUNTS.fullmatch(key) and not 0 <= value <= MAX_COUNT
        if too_many or (is_number and SIZES.fullmatch(key) and not value > 0):
            raise UserError(f"config.json is damaged: {key} is {shorten(value)}", place=place, hint=hint)
    names = stored.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"config.json is damaged: architectures is {shorten(names)}", place=place, hint=hint)


def _check_present(folder: Path, stored: Mapping[str, Any] | None, hint: str) -> None:
    """Refuses files of 0 bytes, as a power cut leaves them, and missing ones of a folder of ours."""
    for path in sorted(folder.iterdir()):
        if READ.fullmatch(path.name) and path.is_file() and not path.stat().st_size:
            raise UserError(f"{path.name} is empty (0 bytes)", place=str(path), hint=hint)
    if stored is None:
        return
    for name in (ADAPTER_CONFIG,) if is_adapter(folder) else (CONFIG, *TOKENIZER):
        if not (folder / name).is_file():
            raise UserError(f"{name} is missing", place=str(folder), hint=hint)
    if not any(path.suffix == ".safetensors" for path in folder.iterdir()):
        raise UserError("model.safetensors is missing", place=str(folder), hint=hint)


def _is_sealed(folder: Path, stored: Mapping[str, Any], hint: str) -> bool:
    """Tells whether a sidecar has hashes; those of models that were written without them have an unmarked config."""
    if "hashes" in stored:
        return True
    had_hashes = is_adapter(folder)  # always
    if not had_hashes:
        config = read_strict_json(folder / CONFIG, hint=hint)
        had_hashes = isinstance(config, dict) and MARK in config
    if had_hashes:
        raise UserError("broken sidecar: it lacks 'hashes'", place=str(folder / SIDECAR), hint=hint)
    return False


def _check_hashes(folder: Path, stored: Mapping[str, Any], hint: str) -> None:
    hashes, place = stored["hashes"], str(folder / SIDECAR)
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise UserError(f"broken sidecar: hashes is {shorten(hashes)}", place=place, hint=hint)
    if hashes.get(SIDECAR) != sidecar_hash(stored):
        problem = f"{SIDECAR} was changed or damaged: its hash is another"
        raise UserError(problem, place=place, hint=hint)
    wanted = {name: value for name, value in hashes.items() if name != SIDECAR}
    present = {path.name for path in folder.iterdir() if path.is_file()}
    if missing := sorted(wanted.keys() - present):
        raise UserError(f"{shorten(missing[0])} is missing", place=str(folder), hint=hint)
    for name in sorted(present - hashes.keys()):
        if READ.fullmatch(name):
            problem = f"{name} was not written with this model, but would be read with it"
            raise UserError(problem, place=str(folder), hint="remove it, or export the run again")
    found = hash_files(folder, wanted)
    for name, value in wanted.items():
        if found[name] != value:
            problem = f"{name} was changed or damaged: its hash is another"
            raise UserError(problem, place=str(folder / name), hint=hint)
