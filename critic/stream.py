"""Processes long or endless lists of requests in chunks, with a progress bar."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice, zip_longest
from typing import Any, TypeVar

from tqdm.auto import tqdm

from critic.requests import Join, Request, read_request
from faithkit.arguments import name_list, read_flag, read_iterable
from faithkit.errors import UserError

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
    """Judges responses chunk by chunk, and yields the results one by one.

    Args:
        judge: Returns a result for each request, in order.
        join: Joins passages to one text.
        description: Label of the progress bar.
        progress: Shows the progress bar.
    """
    given = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
    requests = _read_one_by_one({name: read_iterable(name, column) for name, column in given.items()}, join)
    total = len(response) if isinstance(response, Sized) else None
    with tqdm(total=total, desc=description, disable=not read_flag("progress", progress), unit="response") as bar:
        while chunk := list(islice(requests, chunk_size)):
            yield from judge(chunk)
            bar.update(len(chunk))


def _read_one_by_one(columns: Mapping[str, Iterator[Any]], join: Join) -> Iterator[Request]:
    """Yields the requests of long or endless columns: knowledge, response and optionally history.

    Raises:
        UserError: One column ends before the others, or an item is invalid.
    """
    for place, row in enumerate(zip_longest(*columns.values(), fillvalue=_END)):
        if ended := [name for name, item in zip(columns, row, strict=True) if item is _END]:
            hint = "give as many of each as there are responses"
            raise UserError(f"{name_list(ended)} ended before the others", place=f"item {place}", hint=hint)
        yield read_request(row[0], row[1], row[2] if "history" in columns else None, place, join)
