"""Runs many waiting tasks at a time in a thread of its own, for callers that are not asynchronous."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from queue import SimpleQueue
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
    """An event loop in a thread; results reach the caller through a queue, which signals can interrupt.

    Replies often arrive together. If all were handed over first, their places would begin again together, wait for
    each other's preparing, and stay in step to the end. So results are handed over in turns, and each place prepares
    and sends its next request before the next place has its turn.
    """

    def __init__(
        self,
        items: Iterable[Item],
        work: Callable[[Session, Item], Awaitable[Result]],
        open_session: Callable[[], AbstractAsyncContextManager[Session]],
        concurrency: int,
    ):
        self.items, self.work, self.open_session, self.concurrency = iter(items), work, open_session, concurrency
        self.loop = asyncio.new_event_loop()
        self.turn = asyncio.Lock()
        self.arrived: deque[Future[Result]] = deque()  # in the order of their turns
        self.handed_over: SimpleQueue[Future[Result] | None] = SimpleQueue()
        self.dealt_with = asyncio.Event()
        self.thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def results(self) -> Iterator[Result]:
        while (future := self.handed_over.get()) is not None:
            if (error := future.exception()) is not None:
                self.stop()
                # What arrived beside an item that failed may have cost money: it is given out before the error.
                yield from (each.result() for each in self.arrived if each.exception() is None)
                raise error
            yield future.result()
            self._call(self.dealt_with.set)

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
            self.handed_over.put(_failed(error))
        self.handed_over.put(None)

    async def _run_all(self) -> None:
        async with self.open_session() as session, asyncio.TaskGroup() as tasks:
            for _ in range(self.concurrency):
                tasks.create_task(self._run_place(session))

    async def _run_place(self, session: Session) -> None:
        for item in self.items:  # one iterator for all places
            future: Future[Result] = Future()
            try:
                future.set_result(await self.work(session, item))
            except Exception as error:  # the caller raises it, and so stops the others
                future = _failed(error)
            self.arrived.append(future)
            async with self.turn:
                self.dealt_with.clear()
                self.handed_over.put(self.arrived.popleft())
                await self.dealt_with.wait()


def _failed(error: BaseException) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_exception(error)
    return future
