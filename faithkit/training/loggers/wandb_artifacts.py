"""Artifacts of W&B: the lineage from data to a model to what measured it; no text of the data goes there."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.training.loggers.wandb_names import names_of_model

if TYPE_CHECKING:
    from wandb import Artifact

DATA, MODEL = "dataset", "model"  # types of artifacts
log = logging.getLogger("faithkit")


def weights_of(config: Mapping[str, Any]) -> Any:
    """Names the weights that a training begins with."""
    model = config.get("model") or {}
    return (model.get("task") or {}).get("weights") or model.get("weights")


def models_in(config: Mapping[str, Any]) -> list[str]:
    """Names the models that a configuration uses: what training begins with, what is measured, and what measures."""
    benchmark = config.get("benchmark") or {}
    given = (weights_of(config), config.get("checkpoint"), benchmark.get("critic"))
    return list(dict.fromkeys(str(one) for one in given if one))


def folder_artifact(folder: Path, name: str, metadata: Mapping[str, Any] | None = None) -> "Artifact":
    """Makes the artifact of a model's folder; its files are sent from where they are, without a copy."""
    import wandb

    model = wandb.Artifact(name, type=MODEL, metadata=dict(metadata or {}))
    model.add_dir(str(folder.resolve()), policy="immutable")
    return model


def model_artifact(model: str) -> "Artifact | None":
    """Finds the artifact that a model is at W&B, by the names that the run which made it keeps in its folder."""
    names = names_of_model(model)
    if names is None or names.model is None:
        return None
    folder = Path(model).expanduser()
    hf = next((place / "hf" for place in (folder, folder.parent) if (place / "hf").is_dir()), None)
    found = folder_artifact(hf, names.model) if hf is not None else None
    if found is not None and found.digest == names.model_digest:
        return found
    log.info("W&B: %s is no longer the artifact %s, which is not named as used", hf or folder, names.model)
    return None


def data_artifact(config: Mapping[str, Any], data: Mapping[str, Any]) -> "Artifact | None":
    """Makes the artifact of the data: its fingerprints and sizes, and references to its files where they are local."""
    if not data.get("fingerprints"):
        return None
    import wandb

    block = config.get("benchmark") or config["data"]
    about = {key: data[key] for key in ("fingerprints", "sizes") if key in data}
    artifact = wandb.Artifact(f"data-{block.get('name')}", type=DATA, metadata=about)
    with artifact.new_file("data.json") as file:
        json.dump(about, file, indent=2, sort_keys=True)
    for path in _local_paths(block):
        artifact.add_reference(path.as_uri(), name=path.name, checksum=False)
    return artifact


def _local_paths(block: Mapping[str, Any]) -> list[Path]:
    parts = [part for part in block.get("parts") or () if isinstance(part, Mapping)]
    given = [Path(str(part["path"])).expanduser() for part in (block, *parts) if part.get("path")]
    return list(dict.fromkeys(path.resolve() for path in given if path.exists()))
