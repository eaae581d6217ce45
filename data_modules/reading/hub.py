"""Rows from the Hugging Face hub, through `datasets`: data alone, never a dataset's code."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from data_modules.reading.rows import Row
from faithkit.errors import UserError, shorten


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """One split of a dataset on the hub; it stands where a file's path stands.

    Args:
        dataset: Name on the hub, such as `stanfordnlp/snli`.
        split: Split on the hub.
        data_file: Reads this JSON file of the repository, where the repository itself needs a script of its own to load
            (`datasets` no longer runs those, and neither do we).
        revision: Commit, tag or branch.
        address: Where the official files can be had, told when the hub cannot be reached.
    """

    dataset: str
    split: str
    address: str
    data_file: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return f"hub:{self.dataset}:{self.split}"

    @property
    def name(self) -> str:
        """Its name as a file would have one: ids are made of it."""
        return str(self)

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        assert mode == "rb"
        identity = f"{self} {self.revision} {self.data_file} {self._load()._fingerprint}"
        return io.BytesIO(identity.encode())

    def rows(self) -> Iterator[Row]:
        """The rows in the hub's order."""
        for number, values in enumerate(self._load()):
            yield Row(values, str(self), number, number + 1)

    def _load(self) -> Any:
        from datasets import load_dataset

        try:
            if self.data_file is None:
                return load_dataset(self.dataset, split=self.split, revision=self.revision)
            url = f"hf://datasets/{self.dataset}@{self.revision or 'main'}/{self.data_file}"
            return load_dataset("json", data_files={self.split: url}, split=self.split)
        except Exception as error:  # whatever the network, the hub and the library raise: the user's remedy is the same
            raise UserError(
                f"cannot load from the hub: {type(error).__name__}: {shorten(str(error))}",
                place=str(self),
                hint=f"set data.path=FOLDER with the official files ({self.address}), or check the network",
            ) from error
