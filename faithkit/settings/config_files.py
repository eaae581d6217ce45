"""What configurations name: their files and scripts, choices for checks and code, the embedded corpus as data.

Loads nothing: a command line is checked before Hydra, numpy and torch are imported.
"""

import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
# An installed package carries the configurations; in a checkout they are next to it.
CONFIGS = _PACKAGE / "configs" if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent / "configs"
SWEEP_FILE = "sweep.json"  # in the folder of a sweep, whose runs have folders in it
# Which script made a run, by a key of its configuration that no other script has.
SCRIPTS = {
    "pipeline": "construct",
    "target": "audit",
    "model": "train",
    "benchmark": "evaluate",
    "models": "compare",
    "columns": "score",
    "decoding": "generate",
}
# Strategies of choosing one of several responses by a detector (`faithkit.metrics.suppression`).
FEWEST, NONE, FEWEST_BY_SCORE, NONE_BY_SCORE = ("fewest", "none", "fewest_by_score", "none_by_score")
STRATEGIES = (FEWEST, NONE, FEWEST_BY_SCORE, NONE_BY_SCORE)
GOLD, COPY = RESPONSE_BASELINES = ("gold", "copy")  # the dataset's response, and the knowledge as the response
SELF = "self"
RATE_HISTORIES = (GOLD, SELF)  # turns of the dataset, or of the model itself
RANDOM, UNCERTAINTY = SAMPLING_RULES = ("random", "uncertainty")  # of responses to label; RANDOM is a strategy too
# Of annotation: turns without an answer in the knowledge, and responses as they were before an edit.
UNANSWERABLE, ORIGINAL = ("unanswerable", "original")
ANALYSIS = "analysis"  # the benchmark of RAGTruth that judges nothing
MEASURED, OFFICIAL = CONTROL_SOURCES = ("measured", "official")  # of control tokens: responses, or FaithDial's files
EMBEDDED = "embedded"  # the name of a dataset, and the `path` of any other one that it replaces


def choices_of(group: str, configs: Path = CONFIGS) -> list[str]:
    """Lists the choices of a configuration group."""
    return sorted(path.stem for path in (configs / group).glob("[!_]*.yaml"))


def top_keys(config_name: str, configs: Path = CONFIGS) -> tuple[frozenset[str], frozenset[str]]:
    """Lists the first parts of all keys of an entry file, groups too; and those that are true or false."""
    text = (configs / f"{config_name}.yaml").read_text(encoding="utf-8")
    keys = re.findall(r"^(?:  - )?(?:optional |override )?/?(\w+):", text, re.MULTILINE)
    return frozenset(keys) - {"defaults"}, frozenset(re.findall(r"^(\w+): (?:true|false)\b", text, re.MULTILINE))


def script_of(keys: Container[str], default: str = "train") -> str:
    """Names the script that made a run, by the keys of its configuration."""
    return next((script for key, script in SCRIPTS.items() if key in keys), default)


def display_name(dataset: str, path: object) -> str:
    """Names a dataset as tables, metrics, files and cards show it.

    >>> display_name("ragtruth", "embedded"), display_name("ragtruth", "my/folder")
    ('embedded-ragtruth', 'ragtruth')
    """
    is_marked = dataset == EMBEDDED or dataset.startswith(f"{EMBEDDED}-")
    return f"{EMBEDDED}-{dataset}" if path == EMBEDDED and not is_marked else dataset


def data_path(block: Mapping[str, Any]) -> object:
    """Gives the path of a block of the configuration; of a mix EMBEDDED, where that is the path of every part."""
    parts = block.get("parts")
    if not parts:
        return block.get("path")
    each = list(parts.values() if isinstance(parts, Mapping) else parts)
    is_embedded = all(EMBEDDED in (part.get("path"), part.get("dataset")) for part in each)
    return EMBEDDED if is_embedded else each[0].get("path")


def mark_embedded(cfg: Any) -> None:
    """Replaces the name of a training's data, also in the monitored metric, by its display name."""
    name, monitor = cfg.data.name, cfg.callbacks.monitor
    cfg.data.name = display_name(name, data_path(cfg.data))
    cfg.callbacks.monitor = monitor.replace(f"validation/{name}/", f"validation/{cfg.data.name}/")
