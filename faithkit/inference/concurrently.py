"""Runs many waiting tasks at a time in a thread of its own, for callers that are not asynchronous."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

CLOSING_SECONDS = 5.0  # for open connections to close; the thread never holds up the end of the process
THREAD_NAME = "faithkit-requests"

Session = TypeVar("Session")
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_concurrently(
    items: Iterable[Item],
    work: Callable[[Session, Item], Awaitable[Result]],
    open_session: Callable[[], AbstractAsyncContextManager[Session]],
    concurrency: int,
) -> Iterator[Result]:
    """Yields the result of each item as it ends, in any order; items are begun in theirs.

    An item is begun once an earlier result has been dealt with: when the caller comes back for the next. So no more
    than `concurrency` results are ever on their way, and no more are lost when the process is killed. Where the caller
    stops, by an error, a signal or by closing the iterator, what is open is cancelled at once.

    Args:
        work: An error in it ends the iteration with that error, behind the results that have arrived.
        open_session: Opens what the items share, such as a client's connections.
    """
    pool = _Pool(items, work, open_session, concurrency)
    try:
        pool.start()
        yield from pool.results()
    finally:
        pool.stop()


class _Pool(Generic[Session, Item, Result]):
    """An event loop in a thread; results reach the caller through a queue, which signals can interrupt."""

    def __init__(
        self,
        items: Iterable[Item],
        work: Callable[[Session, Item], Awaitable[Result]],
        open_session: Callable[[], AbstractAsyncContextManager[Session]],
        concurrency: int,
    ):
        self.items, self.work, self.open_session = items, work, open_session
        self.loop = asyncio.new_event_loop()
        self.places = asyncio.Semaphore(concurrency)
        self.ended: SimpleQueue[Future[Result] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def results(self) -> Iterator[Result]:
        while (future := self.ended.get()) is not None:
            if (error := future.exception()) is not None:
                yield from self._arrived()
                raise error
            yield future.result()
            self._call(self.places.release)

    def _arrived(self) -> Iterator[Result]:
        """Gives out what has ended beside an item that failed: it may have cost money, and is kept."""
        with suppress(Empty):
            while (future := self.ended.get_nowait()) is not None:
                if future.exception() is None:
                    yield future.result()

    def stop(self) -> None:
        self._call(self._cancel)
        if self.thread.ident is not None:
            self.thread.join(CLOSING_SECONDS)

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: everything has ended
            self.loop.call_soon_threadsafe(function)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._run_all())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.ended.put(_failed(error))
        self.ended.put(None)

    async def _run_all(self) -> None:
        async with self.open_session() as session, asyncio.TaskGroup() as tasks:
            for item in self.items:
                await self.places.acquire()
                tasks.create_task(self._run_one(session, item))

    async def _run_one(self, session: Session, item: Item) -> None:
        future: Future[Result] = Future()
        try:
            future.set_result(await self.work(session, item))
        except Exception as error:  # the caller raises it, and so stops the others
            future = _failed(error)
        self.ended.put(future)


def _failed(error: BaseException) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_exception(error)
    return future
