"""Damages the files of models' folders: what is scored is what the undamaged folder scores, or nothing is."""

import json
import random
import shutil
from functools import partial
from itertools import product
from pathlib import Path

from faithkit.files.model_folder import SIDECAR
from faithkit.provenance.seen_rows import SEEN_ROWS_FILE as SEEN_ROWS
from tests.faults.campaign import Campaign, Wrong
from tests.faults.model_folders import FOREIGN, MODELS, OLDER, SEALED, wanted, whole_folder
from tests.faults.mutations import mutate_bytes, mutate_value

FILES = (SIDECAR, "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", SEEN_ROWS)


def damage_bytes(path: Path, rng: random.Random) -> None:
    """Damages a file as a disk does."""
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def damage_value(path: Path, rng: random.Random) -> None:
    """Damages a JSON file as a program or a hand does."""
    path.write_text(json.dumps(mutate_value(json.loads(path.read_text(encoding="utf-8")), rng)), encoding="utf-8")


def attempt(kind: str, maker: str, rng: random.Random, folder: Path) -> None:
    """Uses a model with one file damaged.

    Without hashes damage to values may pass, as another value is as good as any: it must be used or refused, no more.
    """
    said = wanted(kind, maker)
    model = shutil.copytree(whole_folder(kind, maker), folder / "model")
    name = rng.choice([name for name in FILES if (model / name).exists()])
    damage = rng.choice((damage_bytes, damage_value) if name.endswith(".json") else (damage_bytes,))
    damage(model / name, rng)
    if MODELS[kind].use(model) != said and maker == SEALED:
        raise Wrong(f"{name} is damaged, and the model says something else")


CAMPAIGNS = [
    Campaign(f"{kind}'s folder: {maker}", partial(attempt, kind, maker), share=0.3)
    for kind, maker in product(MODELS, (SEALED, OLDER, FOREIGN))
]
