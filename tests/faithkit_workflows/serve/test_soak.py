"""Half an hour of mixed requests: no faults, and memory that does not grow."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faithkit_workflows.serve.running_server import ROW, RunningServer, run_server

SECONDS = float(os.environ.get("FAITHKIT_SOAK_SECONDS", "1800"))
WARM_UP_SHARE, MAX_GROWTH_MIB = 0.2, 48  # the cache of contexts and the allocator's arenas fill in the first part


def memory_mib(server: RunningServer) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.slow
def test_memory_stays_flat(default_file: Path) -> None:
    end = time.monotonic() + SECONDS

    def send(number: int) -> int:
        draw, sent = random.Random(number), 0
        while time.monotonic() < end:
            words = draw.choice([5, 50, 500, 3000])
            knowledge = " ".join(f"word{draw.randrange(1000)}" for _ in range(words)) + "."
            body: object = draw.choice([{**ROW, "knowledge": knowledge}, {"rows": [ROW] * 20}, {"knowledge": ""}, [1]])
            status = server.reply("/v1/check", body)[0]
            assert status in (200, 422)
            sent += 1
        return sent

    with run_server(f"checkpoint='default:{default_file}'") as server:
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(send, number) for number in range(8)]
            time.sleep(WARM_UP_SHARE * SECONDS)
            early = memory_mib(server)
            sent = sum(one.result() for one in running)
        late = memory_mib(server)
    print(f"{sent} requests in {SECONDS:g} s: {early:.0f} MiB after the first part, {late:.0f} MiB at the end")
    assert late < early + MAX_GROWTH_MIB
