"""Writes, reads and verifies the `hf/` folder of a model: Hugging Face files, and `faithkit.json` with the rest.

`faithkit.json` (the sidecar) also holds the SHA-256 of all files, including itself; they are verified before the
weights are used. A mark in `config.json` shows that the folder must have a sidecar.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import atomic_folder, dumps, hash_files, write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.files.run_folder import RunFolder
from faithkit.languages import ANY
from faithkit.settings.check import options
from faithkit.words import VERSION as WORDS_VERSION

SIDECAR, CONFIG, CARD = "faithkit.json", "config.json", "README.md"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of a folder with only adapters
MARK = "faithkit"  # the key of config.json that marks a folder with a sidecar
Settings = TypeVar("Settings")
log = logging.getLogger("faithkit")


class FolderPart(Protocol):
    """What writes a file of its kind into a folder, such as the rows that a model has seen."""

    def write(self, folder: Path) -> None:
        """Writes it."""


@options()
class Sidecar:
    """The settings, in addition to the weights, that are needed to use a model as it was trained.

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


def write_folder(folder: Path, model: Any, tokenizer: Any, sidecar: Sidecar, seen: FolderPart | None = None) -> None:
    """Writes weights as safetensors, tokenizer, seen rows and sidecar, replacing an older folder in one step."""

    def fill(unfinished: Path) -> None:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)

    write_sealed(folder, fill, sidecar, seen)


def write_sealed(folder: Path, fill: Callable[[Path], None], sidecar: Sidecar, seen: FolderPart | None = None) -> None:
    """Writes a model folder: the files from `fill`, seen rows, and the sidecar with the hashes of all files."""
    from faithkit.packages import environment

    stored = asdict(sidecar)
    with atomic_folder(folder, replace=True) as unfinished:
        fill(unfinished)
        if seen is not None:
            seen.write(unfinished)
        seal(unfinished, {**stored, "versions": {**environment(), "words": WORDS_VERSION}})


def seal(folder: Path, stored: Mapping[str, Any]) -> None:
    """Marks config.json, and writes the sidecar with the hashes of all files except the model card.

    The configuration of adapters is not marked: peft warns of unknown keys.
    """
    if (folder / CONFIG).exists():
        config = read_strict_json(folder / CONFIG, hint="write the model again")
        write_json(folder / CONFIG, {**config, MARK: {"kind": stored["kind"], "sidecar": SIDECAR}})
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in (SIDECAR, CARD))
    hashes = hash_files(folder, names)
    plain = {name: value for name, value in stored.items() if name != "hashes"}
    write_json(folder / SIDECAR, {**plain, "hashes": {**hashes, SIDECAR: sidecar_hash({**plain, "hashes": hashes})}})


def sidecar_hash(stored: Mapping[str, Any]) -> str:
    """Hashes a sidecar's content without its hash of itself."""
    hashes = {name: value for name, value in stored["hashes"].items() if name != SIDECAR}
    return hashlib.sha256(dumps({**stored, "hashes": hashes}).encode()).hexdigest()


def find_folder(path: str) -> Path:
    """Finds the model folder of a path: a run's hf/, or the folder itself, which may hold adapters."""
    root = Path(path).expanduser()
    for candidate in (root, RunFolder(root).hf):
        if any((candidate / name).exists() for name in (CONFIG, SIDECAR, ADAPTER_CONFIG)):
            return candidate
    if not root.exists():
        raise UserError("no such run or folder", place=path, hint="give a run's folder, an hf/ folder or a hub name")
    if RunFolder(root).last.exists():
        raise UserError("this run has not finished", place=path, hint=f"faithkit train resume={path}")
    raise UserError("neither a run nor a Hugging Face folder", place=path, hint="it should contain hf/ or config.json")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds adapters instead of a complete model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / CONFIG).exists()


def card_languages(folder: Path) -> tuple[str, ...] | None:
    """Reads the `language` of a model card, as the hub has it: ISO 639 codes; None without one."""
    import yaml

    path = folder / CARD
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not text.startswith("---\n"):
        return None
    try:
        found = yaml.safe_load(text[4:].partition("\n---")[0])
    except yaml.YAMLError:
        return None
    stated = found.get("language") if isinstance(found, dict) else None
    codes = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
    return tuple(ANY if code == "multilingual" else str(code) for code in codes) or None


def repair_hint(folder: Path) -> str:
    """Returns the command that writes a model folder again."""
    run = _run_of(folder)
    return f"faithkit train resume={run}   writes it again" if run else "export the run again, or copy the folder again"


def _run_of(folder: Path) -> Path | None:
    run = RunFolder(folder.parent)
    return run.path if folder.name in (run.hf.name, run.adapter.name) and run.config.exists() else None


def read_stored(folder: Path) -> dict[str, Any] | None:
    """Reads the content of faithkit.json; None for a model from elsewhere.

    Raises:
        UserError: It is broken, or missing in a marked folder.
    """
    path, hint = folder / SIDECAR, repair_hint(folder)
    if path.exists():
        stored = read_strict_json(path, hint=hint)
        if not isinstance(stored, dict):
            raise UserError("broken sidecar: not a mapping", place=str(path), hint=hint)
        return stored
    config: Any = {}
    if (folder / CONFIG).exists():
        config = read_strict_json(folder / CONFIG, hint="copy or download the folder again")
    if _run_of(folder) or (isinstance(config, dict) and MARK in config):
        problem = f"{SIDECAR} is missing: without it the model's thresholds and lengths are not known"
        raise UserError(problem, place=str(folder), hint=hint)
    return None


def read_sidecar(folder: Path) -> Sidecar | None:
    """Reads the sidecar; None for a model from elsewhere. The weights are not verified."""
    stored = read_stored(folder)
    if stored is None:
        return None
    versions = stored.get("versions")
    made_with = versions.get("words") if isinstance(versions, dict) else None
    if made_with != WORDS_VERSION:
        fitted = "control features and a tagger's evidence were fitted on words"
        log.warning("%s: %s of version %s, now %s: train again", folder / SIDECAR, fitted, made_with, WORDS_VERSION)
    return parse(folder, lambda: Sidecar(**{field.name: stored[field.name] for field in fields(Sidecar)}))


def sidecar_of(checkpoint: str | None) -> Sidecar | None:
    """Reads the sidecar of a local run or folder; None for a hub name, a file or a model from elsewhere."""
    if not checkpoint or not Path(checkpoint).expanduser().is_dir():
        return None
    return read_sidecar(find_folder(checkpoint))


def read_settings(folder: Path, kind: str, build: Callable[[Sidecar], Settings]) -> Settings | None:
    """Reads the settings of a model of this kind from its sidecar; None for a model from elsewhere.

    Raises:
        UserError: The model is of another kind, or the sidecar is broken.
    """
    sidecar = read_sidecar(folder)
    if sidecar is None:
        return None
    if sidecar.kind != kind:
        hint = f"give the folder of a run of a {kind}"
        problem = f"the model is a {sidecar.kind!r}, and a {kind!r} is needed"
        raise UserError(problem, place=str(folder / SIDECAR), hint=hint)
    return parse(folder, lambda: build(sidecar))


def parse(folder: Path, build: Callable[[], Settings]) -> Settings:
    """Builds settings from a sidecar, and explains a broken one."""
    try:
        return build()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        problem = f"broken sidecar: {error.problem if isinstance(error, UserError) else lacks}"
        raise UserError(problem, place=str(folder / SIDECAR), hint=repair_hint(folder)) from error


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
# Files that transformers reads if it finds them: no additional one may appear.
READ = re.compile(r".*\.(safetensors|bin|pt|pth|h5|msgpack|gguf|json|jinja|model|spm|py)|vocab\.txt|merges\.txt")
# Files that are parsed as JSON; the parser of tokenizer.json is strict itself, and faster.
SMALL_JSON = (CONFIG, "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Counts in config.json from which transformers builds lists, and a limit above those of any model.
COUNTS = re.compile(r".*(layer|label|expert|group).*")
MAX_COUNT = 2000
SIZES = re.compile(r"num_.*heads|n_heads?|n_embd|hidden_size|intermediate_size|vocab_size|head_dim|d_(model|kv|ff)")


def check_folder(folder: Path) -> None:
    """Checks a model's folder: no file is empty or broken, and the files match the hashes of the sidecar.

    Raises:
        UserError: A file is damaged.
    """
    stored = read_stored(folder)
    hint = "copy or download the folder again" if stored is None else repair_hint(folder)
    for path in sorted(folder.iterdir()):
        if READ.fullmatch(path.name) and path.is_file() and not path.stat().st_size:  # as after a power cut
            raise UserError(f"{path.name} is empty (0 bytes)", place=str(path), hint=hint)
    if stored is None:
        for name in SMALL_JSON:
            if (folder / name).exists() and not isinstance(read_strict_json(folder / name, hint=hint), dict):
                raise UserError("not a JSON object", place=str(folder / name), hint=hint)
        if (folder / CONFIG).exists():
            check_config(read_strict_json(folder / CONFIG, hint=hint), str(folder), hint=hint)
        return
    for name in (ADAPTER_CONFIG,) if is_adapter(folder) else (CONFIG, *TOKENIZER):
        if not (folder / name).is_file():
            raise UserError(f"{name} is missing", place=str(folder), hint=hint)
    if not any(path.suffix == ".safetensors" for path in folder.iterdir()):
        raise UserError("model.safetensors is missing", place=str(folder), hint=hint)
    hashes, place = stored.get("hashes"), str(folder / SIDECAR)
    if hashes is None:
        raise UserError("broken sidecar: it lacks 'hashes'", place=place, hint=hint)
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise UserError(f"broken sidecar: hashes is {shorten(hashes)}", place=place, hint=hint)
    if hashes.get(SIDECAR) != sidecar_hash(stored):
        raise UserError(f"{SIDECAR} was changed or damaged: its hash differs", place=place, hint=hint)
    expected = {name: value for name, value in hashes.items() if name != SIDECAR}
    present = {path.name for path in folder.iterdir() if path.is_file()}
    if missing := sorted(expected.keys() - present):
        raise UserError(f"{shorten(missing[0])} is missing", place=str(folder), hint=hint)
    for name in sorted(present - hashes.keys()):
        if READ.fullmatch(name):
            problem = f"{name} was not written with this model, but would be read with it"
            raise UserError(problem, place=str(folder), hint="remove it, or export the run again")
    for name, value in hash_files(folder, expected).items():
        if expected[name] != value:
            problem = f"{name} was changed or damaged: its hash differs"
            raise UserError(problem, place=str(folder / name), hint=hint)


def check_config(stored: Mapping[str, Any], place: str, *, hint: str) -> None:
    """Checks the numbers of a config.json, which could exhaust the memory, and its list of classes."""
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
