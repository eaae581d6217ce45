"""The work on the rows of a shard: all in which scoring and answering differ."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from data_modules.reading.shards import is_address
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable

if TYPE_CHECKING:
    from faithkit.records import Prediction
    from faithkit_workflows.answering.strategies import Answerer

PATHS = ("checkpoint", "detector", "out")  # keys of a command that may name files


def answered(rows: UserTable, answerer: "Answerer", at_a_time: int) -> "Iterator[Prediction]":
    """Answers or judges all rows that can be, portion after portion."""
    from faithkit_workflows.answering.write_answers import answer_in_chunks

    for _, portion in answer_in_chunks(rows.examples, answerer, chunk_size=at_a_time):
        yield from portion


class ShardWriter(Protocol):
    """Models that are loaded: makes the new shard of the rows of an old one."""

    @property
    def device(self) -> str:
        """Names the device that the models run on."""
        ...

    def write(self, path: Path, rows: UserTable) -> ShareCounter:
        """Writes the rows with what is added to them; gives the verdicts, of which there may be none."""
        ...


class Work(Protocol):
    """The work of a command on shards. It travels to the workers, so it holds settings alone.

    Args:
        done: Names it in messages: scored, answered.
        judges: Verdicts come of it, whose share is told.
        data: The folder, glob or address of the shards.
        out: The folder of the new ones.
        place: The checkpoint, as an error names it.
        num_resamples: Bootstrap resamples behind an interval.
    """

    done: str
    judges: bool
    data: str
    out: str
    place: str
    ray: RayOptions
    num_resamples: int

    def identify(self) -> dict[str, Any]:
        """Collects what the results depend on, as plain values that two processes can compare."""
        ...

    def read(self, file: Path) -> UserTable:
        """Reads the rows of a shard; a bad one is kept without a result.

        Raises:
            UserError: No row can be used.
        """
        ...

    def schema(self, rows: UserTable) -> Any:
        """Gives the columns of a new shard and their types."""
        ...

    def load(self) -> ShardWriter:
        """Loads the models."""
        ...


def with_whole_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the paths of a command whole: a worker stands in another folder."""
    return {**config, **{key: whole_path(config[key], key) for key in PATHS if config.get(key)}}


def whole_path(path: str, key: str = "") -> str:
    """Makes a path whole, but for an address and the name of a model on the hub."""
    place = Path(path).expanduser()
    if is_address(path) or (key in ("checkpoint", "detector") and not place.exists()):
        return path
    return str(place.absolute())
