"""Damages a run's config.yaml, its bytes and its values, and reads it for a resume: no training."""

import random
from functools import cache
from pathlib import Path
from typing import Any

from faithkit.files.open_run import apply_overrides, resolve_config
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import read_config, write_config
from faithkit.targets import DATASETS, TARGETS, check_names
from tests.faults.campaign import Campaign, Wrong
from tests.faults.mutations import mutate_bytes, mutate_value
from tests.running import compose

HOSTILE = (
    {"_target_": "os.system", "command": "true"},
    {"_target_": ["torch.load"]},
    {"_target_": 5},
    [{"_target_": "numpy.load"}],
    "${oc.env:HOME}",
    "\\${seed}",
    "${",
)


@cache
def _whole(model: str) -> dict[str, Any]:
    return resolve_config(compose("train", f"model={model}", *(["control=ctrl"] if model == "t5" else [])))


def _read(folder: Path) -> None:
    """Reads the configuration as a resume does, and looks at what has passed."""
    run = RunFolder(folder)
    config = read_config(run.config)
    apply_overrides(run, config, _whole("critic"), ["resume=x"], ())
    check_names(config, [])
    _look(config)


def _look(value: Any) -> None:
    if isinstance(value, dict):
        target = value.get("_target_")
        if target is not None and target not in (*TARGETS, *DATASETS.values()):
            raise Wrong(f"{target!r} would be built")
        for item in value.values():
            _look(item)
    elif isinstance(value, list):
        for item in value:
            _look(item)
    elif not isinstance(value, str | int | float | bool | None):
        raise Wrong(f"{value!r} is no plain value")


def damage_bytes(rng: random.Random, folder: Path) -> None:
    write_config(folder / "config.yaml", _whole(rng.choice(("critic", "t5"))))
    data = (folder / "config.yaml").read_bytes()
    for _ in range(rng.choice((1, 1, 3))):
        data = mutate_bytes(data, rng)
    (folder / "config.yaml").write_bytes(data)
    _read(folder)


def damage_values(rng: random.Random, folder: Path) -> None:
    config = mutate_value(_whole(rng.choice(("critic", "t5"))), rng)
    if isinstance(config, dict) and rng.random() < 0.5:
        config[rng.choice(list(config) or ["a"])] = rng.choice(HOSTILE)
    if not isinstance(config, dict):
        config = {"a": config}
    write_config(folder / "config.yaml", config)
    if repr(read_config(folder / "config.yaml")) != repr(config):  # a NaN is unlike itself
        raise Wrong("what was written is not what is read")
    _read(folder)


CAMPAIGNS = [
    Campaign("config.yaml, bytes: read for a resume", damage_bytes, share=0.5),
    Campaign("config.yaml, values: read for a resume", damage_values, share=0.5),
]
