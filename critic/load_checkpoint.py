"""Loads a trained detector from a run, an hf/ folder or a hub name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from data_modules.encoding.tokens import load_tokenizer
from faithkit.files.model_folder import Sidecar, find_folder, read_settings, whole_weights
from faithkit.weights.quick_import import import_transformers
from faithkit.weights.resolve import HUB_NAME, loading

Settings = TypeVar("Settings")


class LoadedCheckpoint(NamedTuple, Generic[Settings]):
    """A model in fp32, its tokenizer, its device, and its settings: None without a sidecar of ours."""

    model: Any
    tokenizer: Any
    device: str
    settings: Settings | None


def load_checkpoint(
    path: str, auto: str, kind: str, build: Callable[[Sidecar], Settings], device: str | None
) -> LoadedCheckpoint[Settings]:
    """Loads what a path names; nothing in it is executed.

    Args:
        auto: The name of transformers' Auto class.
        kind: What the sidecar must say it is.
        build: Makes settings of a sidecar.
        device: None takes the GPU where there is one.
    """
    import_transformers()
    import torch
    import transformers

    folder = find_folder(path) if Path(path).expanduser().exists() or not HUB_NAME.fullmatch(path) else None
    settings = read_settings(folder, kind, build) if folder else None
    with loading(str(folder or path)) as source, whole_weights(source):
        model = getattr(transformers, auto).from_pretrained(
            source, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        )
        tokenizer = load_tokenizer(source)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return LoadedCheckpoint(model.eval().to(device), tokenizer, device, settings)
