"""Names a model by its content, for figures of it that are kept: a path says nothing about what lies there."""

import hashlib
from pathlib import Path

from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import CARD, find_folder
from faithkit.weights.resolve import LOCAL, is_hub_name, resolve


def model_key(name: str) -> str:
    """Gives a hash of a model's files, of a run too; a hub's name stays as it is, since no folder is known for it.

    Raises:
        UserError: It names no model.
    """
    if name not in LOCAL and is_hub_name(name):
        return name
    folder = Path(resolve(name)) if name in LOCAL else find_folder(name)
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    read = [name for name in names if name != CARD and not name.startswith(".")]
    lines = [f"{name} {digest}" for name, digest in hash_files(folder, read).items()]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()
