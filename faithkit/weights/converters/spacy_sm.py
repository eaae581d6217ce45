"""en_core_web_sm: the wheel holds a folder that `spacy.load` reads; the code around it stays behind."""

import shutil
from pathlib import Path

VERSION = 1


def convert(source: Path, target: Path) -> None:
    """Copy the pipeline's folder."""
    shutil.copytree(source, target, dirs_exist_ok=True)
