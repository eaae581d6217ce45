"""The queue: every row gets its own result, short rows pass long ones, cancelled rows are dropped."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import faithkit_workflows.serve.service as batcher_module
from faithkit_workflows.serve.schemas import Problem
from faithkit_workflows.serve.service import FIRST_RATE, PASSED_TIMES, Batcher


def make_batcher(judge: Any, **options: Any) -> Batcher[Any, Any]:
    values = {"workers": 2, "batch_characters": 400, "wait_seconds": 0.002, "max_rows": 1000}
    return Batcher(judge, **(values | options))


@given(st.lists(st.lists(st.integers(1, 800), min_size=1, max_size=8), min_size=1, max_size=12))
def test_every_request_gets_the_results_of_its_rows(requests: list[list[int]]) -> None:
    batches: list[Sequence[Any]] = []

    def judge(items: Sequence[Any]) -> list[Any]:
        batches.append(items)
        return [("judged", item) for item in items]

    async def send_all() -> list[Any]:
        return await asyncio.gather(
            *(batcher.submit([(n, place) for place in range(len(sizes))], sizes) for n, sizes in enumerate(requests))
        )

    batcher = make_batcher(judge)
    found = asyncio.run(send_all())
    batcher.close()
    assert found == [[("judged", (n, place)) for place in range(len(sizes))] for n, sizes in enumerate(requests)]
    for batch in batches:
        sizes = [requests[n][place] for n, place in batch]
        assert len(batch) == 1 or sum(sizes) <= 400
        assert len({size > 100 for size in sizes}) == 1  # long rows are judged among themselves


def test_a_cancelled_request_leaves_the_queue_and_a_full_queue_refuses() -> None:
    release, judged = threading.Event(), []

    def judge(items: Sequence[Any]) -> list[Any]:
        release.wait(30)
        judged.extend(items)
        return list(items)

    async def send() -> None:
        busy = asyncio.create_task(batcher.submit(["busy"], [1]))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(batcher.submit(["dropped"] * 3, [1] * 3))
        await asyncio.sleep(0.05)
        with pytest.raises(Problem) as refused:
            await batcher.submit(["one more"], [1])
        assert (refused.value.code, refused.value.status) == ("queue_full", 503)
        assert int(refused.value.headers["Retry-After"]) >= 1
        waiting.cancel()
        await asyncio.sleep(0.05)
        assert batcher.num_waiting == 0
        release.set()
        await busy

    batcher = make_batcher(judge, max_rows=3, workers=1)
    asyncio.run(send())
    batcher.close()
    assert judged == ["busy"]


@pytest.mark.parametrize(("size", "bound"), [(500, PASSED_TIMES * 500 / FIRST_RATE), (10**6, 0.8)])
def test_short_rows_pass_a_long_one_for_a_bounded_time(size, bound, monkeypatch) -> None:
    monkeypatch.setattr(batcher_module, "MAX_PASSED_SECONDS", 0.8)
    order: list[str] = []

    def judge(items: Sequence[Any]) -> list[Any]:
        time.sleep(0.01)
        order.extend(items)
        return list(items)

    async def send() -> float:
        async def send_short() -> None:
            while not long.done():
                await batcher.submit(["short"], [60])

        busy = asyncio.create_task(batcher.submit(["busy"], [100]))
        await asyncio.sleep(0.005)
        began, long = time.perf_counter(), asyncio.ensure_future(batcher.submit(["long"], [size]))
        short = [asyncio.create_task(send_short()) for _ in range(20)]
        await long
        waited = time.perf_counter() - began
        await asyncio.gather(busy, *short)
        return waited

    batcher = make_batcher(judge, workers=1, batch_characters=100)  # one row at a time: none is in a batch by chance
    waited = asyncio.run(send())
    batcher.close()
    assert order[:5] == ["busy", *["short"] * 4], "shorter rows that came later are judged first"
    assert bound - 0.1 < waited < bound + 0.6, "and then no further one"


def test_a_fault_fails_its_rows_and_no_others() -> None:
    def judge(items: Sequence[Any]) -> list[Any]:
        if "bad" in items:
            raise RuntimeError("a fault")
        return [ValueError("refused") if item == "refused" else item for item in items]

    async def send() -> list[Any]:
        requests = (batcher.submit([name], [400]) for name in ("good", "bad", "refused", "good"))
        return await asyncio.gather(*requests, return_exceptions=True)

    batcher = make_batcher(judge)
    first, bad, refused, last = asyncio.run(send())
    batcher.close()
    assert first == last == ["good"]
    assert isinstance(bad, RuntimeError) and isinstance(refused, ValueError)
