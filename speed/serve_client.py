"""Sends the rows of a file to a server from many clients, and writes one JSON line of figures.

PYTHON serve_client.py URL ROWS CLIENTS SECONDS      ROWS: JSON lines {"body", "words"}; each client goes through them
"""

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp

SHORT, LONG = 200, 1000  # words: up to SHORT is short, from LONG on is long


def quantile(seconds: list[float], share: float) -> float:
    """Returns a quantile in milliseconds."""
    return round(1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 2)


async def send(url: str, rows: list[dict[str, object]], clients: int, seconds: float) -> dict[str, object]:
    """Sends requests for some seconds."""
    times: dict[str, list[float]] = {}
    statuses: Counter[str] = Counter()
    end = time.perf_counter() + seconds

    async def work(session: aiohttp.ClientSession, number: int) -> None:
        for place in itertools.count(number * len(rows) // clients):
            row = rows[place % len(rows)]
            began = time.perf_counter()
            if began >= end:
                return
            try:
                async with session.post(url, json=row["body"]) as reply:
                    await reply.read()
                    statuses[str(reply.status)] += 1
            except aiohttp.ClientError as error:
                statuses[type(error).__name__] += 1
            taken, words = time.perf_counter() - began, int(str(row["words"]))
            size = "short" if words <= SHORT else "long" if words >= LONG else "middle"
            times.setdefault(size, []).append(taken)

    began = time.perf_counter()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300)
    ) as session:
        await asyncio.gather(*(work(session, number) for number in range(clients)))
    taken = time.perf_counter() - began
    quantiles = {name: [quantile(found, 0.5), quantile(found, 0.99), len(found)] for name, found in times.items()}
    every = [one for found in times.values() for one in found]
    return {"rate": len(every) / taken, "mean": statistics.mean(every), "statuses": statuses, "quantiles": quantiles}


def main() -> None:
    """Reads the arguments, and prints the figures."""
    url, path, clients, seconds = sys.argv[1:]
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    print(json.dumps(asyncio.run(send(url, rows, int(clients), float(seconds)))))


if __name__ == "__main__":
    main()
