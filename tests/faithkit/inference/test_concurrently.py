"""Work that waits is done many at a time: an error ends it, and loses nothing that has arrived."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from faithkit.inference.openai_engine import run_concurrently


@asynccontextmanager
async def no_session() -> AsyncIterator[None]:
    yield


async def wait(_: None, seconds: float) -> float:
    """Ends after so many seconds; below 0 it fails after as many."""
    await asyncio.sleep(abs(seconds))
    if seconds < 0:
        raise ValueError("refused")
    return seconds


def test_what_arrives_beside_an_item_that_fails_is_given_out_before_the_error() -> None:
    found = []
    with pytest.raises(ValueError, match="refused"):
        for seconds in run_concurrently([0.0, -0.01, 0.05, 60.0], wait, no_session, 4):
            found.append(seconds)
            if len(found) == 1:
                time.sleep(0.5)  # the caller is busy: meanwhile one fails, another ends, a third stays open
    assert found == [0.0, 0.05]
