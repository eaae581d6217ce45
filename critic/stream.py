"""Reads long or endless lists of requests, and answers them in chunks with a progress bar."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice, zip_longest
from typing import Any, TypeVar

from tqdm.auto import tqdm

from critic.requests import Join, Request, name_list, read_request
from faithkit.errors import UserError, shorten

Result = TypeVar("Result")
_END = object()


def stream_results(
    judge: Callable[[list[Request]], Sequence[Result]],
    knowledge: Iterable[Any],
    response: Iterable[Any],
    history: Iterable[Any] | None,
    *,
    join: Join,
    chunk_size: int,
    description: str,
    progress: bool,
) -> Iterator[Result]:
    """Judges responses a chunk at a time, and gives the results one by one.

    Args:
        judge: Gives a result for each request, in order.
        join: Makes one text of passages.
        description: Stands in front of the bar.
        progress: Shows the bar.
    """
    requests = _read_one_by_one(knowledge, response, history, join)
    total = len(response) if isinstance(response, Sized) else None
    with tqdm(total=total, desc=description, disable=not progress, unit="response") as bar:
        while chunk := list(islice(requests, chunk_size)):
            yield from judge(chunk)
            bar.update(len(chunk))


def _read_one_by_one(
    knowledge: Iterable[Any], response: Iterable[Any], history: Iterable[Any] | None, join: Join
) -> Iterator[Request]:
    """The requests of long or endless lists, read one by one.

    Raises:
        UserError: One of them ends before the others, or an item is wrong.
    """
    columns = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
    for name, column in columns.items():
        if isinstance(column, str | Mapping) or not isinstance(column, Iterable):
            raise UserError(f"{name} must be a list or another iterable, got {shorten(column)}")
    for place, row in enumerate(zip_longest(*columns.values(), fillvalue=_END)):
        if ended := [name for name, item in zip(columns, row, strict=True) if item is _END]:
            raise UserError(f"{name_list(ended)} ended before the others", place=f"item {place}")
        yield read_request(row[0], row[1], row[2] if history is not None else None, place, join)
