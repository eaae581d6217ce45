"""Names the embedded corpus where it replaces another dataset, so that results show which rows they are about."""

from collections.abc import Mapping
from typing import Any

EMBEDDED = "embedded"  # the name of a dataset, and the `path` of any other one that it replaces


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
