"""The cache: everything that can be made again, such as converted weights, encodings and answers of models.

`FAITHKIT_HOME` moves it, for instance to a disk that every node of a cluster sees.
"""

import os
from pathlib import Path

from faithkit.files.atomic import disk_errors


def cache_dir(*parts: str) -> Path:
    """Gives a folder of the cache, made where it is missing.

    The environment is read at each call and not at import, so that a test or a notebook can move the cache.

    Args:
        parts: The path below the cache's root, such as `"weights", "minilm"`; none for the root itself.
    """
    root = os.environ.get("FAITHKIT_HOME") or Path.home() / ".cache" / "faithkit"
    folder = Path(root).expanduser().joinpath(*parts)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder
