"""Checks the files of a model's folder before its weights are used."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import (
    ADAPTER_CONFIG,
    CONFIG,
    MARK,
    SIDECAR,
    is_adapter,
    mend_hint,
    read_stored,
    sidecar_hash,
)
from faithkit.files.strict_json import read_strict_json

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
