"""The folder of the configurations: what `--help` lists of it, and the script of a configuration, without Hydra."""

import re
from collections.abc import Container
from pathlib import Path

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
