"""Changes to folders of models, as others make them and as damage leaves them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faithkit.files.model_folder import CONFIG, MARK, SIDECAR


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrites a JSON file; `change` gives the new content, or None where it changed the old one."""
    value = json.loads(path.read_text(encoding="utf-8"))
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")


def edit_tensors(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrites the weights of a folder."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make_older(folder: Path) -> Path:
    """Makes a folder of ours one that was written before there were hashes."""
    edit_json(folder / CONFIG, lambda config: config.pop(MARK) and None)
    edit_json(folder / SIDECAR, lambda stored: stored.pop("hashes") and None)
    return folder


def make_foreign(folder: Path) -> Path:
    """Makes a folder of ours one of someone else's: weights, tokenizer and config.json alone."""
    edit_json(folder / CONFIG, lambda config: config.pop(MARK) and None)
    (folder / SIDECAR).unlink()
    return folder
