"""Names the embedded corpus, which stands in for a dataset that is not at hand, so that no reader takes it for that."""

from collections.abc import Mapping
from typing import Any

EMBEDDED = "embedded"  # a dataset of its own, and the `path` of any other that it stands in for


def told_name(dataset: str, path: object) -> str:
    """Names a dataset as a reader should see it: in tables, metrics, files and cards.

    >>> told_name("ragtruth", "embedded"), told_name("ragtruth", "my/folder"), told_name("embedded", "embedded")
    ('embedded-ragtruth', 'ragtruth', 'embedded')
    """
    is_told = dataset == EMBEDDED or dataset.startswith(f"{EMBEDDED}-")
    return f"{EMBEDDED}-{dataset}" if path == EMBEDDED and not is_told else dataset


def source_of(block: Mapping[str, Any]) -> object:
    """Tells where a block of the configuration takes its rows: EMBEDDED where every part of a mix does."""
    parts = block.get("parts")
    if not parts:
        return block.get("path")
    each = list(parts.values() if isinstance(parts, Mapping) else parts)
    is_embedded = all(EMBEDDED in (part.get("path"), part.get("dataset")) for part in each)
    return EMBEDDED if is_embedded else each[0].get("path")


def tell_stand_in(cfg: Any) -> None:
    """Names a training's data, and the metric that it monitors, as its run's name, metrics and card will have them."""
    before, monitor = cfg.data.name, cfg.callbacks.monitor
    cfg.data.name = told_name(before, source_of(cfg.data))
    cfg.callbacks.monitor = monitor.replace(f"validation/{before}/", f"validation/{cfg.data.name}/")
