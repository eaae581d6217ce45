"""Changes to folders of models, as others make them and as damage leaves them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faithkit.files.model_folder import CONFIG, MARK, SIDECAR
from faithkit.provenance.used_model import SEEN_ROWS_FILE as SEEN_ROWS

Change = Callable[[Path], Any]  # made to a folder


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrites a JSON file; `change` gives the new content, or None if it changed the old one."""
    value = json.loads(path.read_text(encoding="utf-8"))
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")


def edit_tensors(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrites the weights of a folder."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make_foreign(folder: Path) -> Path:
    """Makes a folder of ours one of someone else's: weights, tokenizer and config.json alone."""
    (folder / SEEN_ROWS).unlink(missing_ok=True)
    edit_json(folder / CONFIG, lambda config: config.pop(MARK) and None)
    (folder / SIDECAR).unlink()
    return folder


def with_places(folder: Path, target: Path, num_places: int) -> Path:
    """Copies a model whose positions are no weights, with so many of them."""
    shutil.copytree(folder, target)
    config(max_position_embeddings=num_places)(target)
    return target


def config(**values: Any) -> Change:
    return lambda folder: edit_json(folder / "config.json", lambda stored: stored.update(values))


def drop(part: str) -> Change:
    """Takes the tensors with this part in their names out of the weights."""

    def change(folder: Path) -> None:
        def without(tensors: dict[str, Any]) -> None:
            for name in [name for name in tensors if part in name]:
                del tensors[name]

        edit_tensors(folder, without)

    return change


def rename(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        def renamed(tensors: dict[str, Any]) -> None:
            for name in [name for name in tensors if old in name]:
                tensors[name.replace(old, new)] = tensors.pop(name)

        edit_tensors(folder, renamed)

    return change


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def data(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Change:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def empty(name: str) -> Change:
    return lambda folder: os.truncate(folder / name, 0)


def flip(name: str) -> Change:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-100] ^= 1
        (folder / name).write_bytes(content)

    return change


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]
