"""A class of another package, which leaves a marker where it is built."""

from pathlib import Path


class Marks:
    def __init__(self, path: str):
        Path(path).touch()
