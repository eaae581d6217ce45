"""What is stated of the datasets that models are trained on: licences, names on the hub, languages."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit.languages import ANY, ENGLISH

DATASETS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EMBEDDED = "embedded"  # the prefix of the embedded corpus in the layout of a dataset


def training_sets(origin: Mapping[str, Any]) -> list[str]:
    """Lists the datasets of training; `embedded` for the embedded corpus in any layout.

    Args:
        origin: Of a model's faithkit.json.
    """
    sizes = (origin.get("data") or {}).get("sizes", {}).get("train", {})
    return sorted({EMBEDDED if str(name).startswith(EMBEDDED) else str(name) for name in sizes})


def trained_languages(origin: Mapping[str, Any]) -> tuple[str, ...]:
    """Lists the languages of the training data; `any` where they are unknown, as of your tables."""
    names = training_sets(origin)
    if not names or not all(name in DATASETS for name in names):
        return (ANY,)
    return tuple(sorted({code for name in names for code in DATASETS[name].get("language", (ENGLISH,))}))
