"""Measures the chains of construct.py: requests against a server's own time, and memory by the number of rows.

Needs: the `openai` extra, and Linux (it reads /proc).

python -m speed.construct_speed --requests 1000 --rows 1000 1000000
"""

import argparse
import asyncio
import json
import multiprocessing
import selectors
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import KEY, Row, hole, without_holes
from construction.chain.divide import Division
from construction.chain.engine_pool import Build
from construction.chain.runner import Chain, Source, Step
from construction.chain.split_leaks import TextInSplit, find_shared_texts
from construction.halludial import write_halludial
from faithkit.inference.decoding import Decoding
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import Form, Reply, Request, TextEngine
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from speed.measure import anonymous_mib, report, require, table

SECONDS = 0.05  # that the server takes to answer
ANSWER = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It is so."}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 4},
    }
).encode()
KNOWLEDGE = "The lighthouse at Marrow Point was built in 1871 from granite that came by ship from the north. " * 4
PROMPT = TextPrompt("Reply by this knowledge:\n\n{knowledge}\n\n{history}", ("knowledge", "history"), name="speed")


def main() -> None:
    """Takes both figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 100_000])
    options = parser.parse_args()
    require("openai", hint="pip install -e '.[openai]'")
    if options.requests:
        report_requests(options.requests, options.concurrency, options.rounds)
    if options.rows:
        report_memory(options.rows)


def report_requests(number: int, concurrencies: Sequence[int], rounds: int) -> None:
    """Writes how long a step that samples takes, beside what the server's own time comes to."""
    url, server = start_server()
    rows = []
    try:
        for concurrency in concurrencies:
            ideal, taken, typed, bare = number / concurrency * SECONDS, [], [], []
            for _ in range(rounds):  # in turns: what else the machine does befalls all alike
                taken.append(ask_all(url, number, concurrency))
                typed.append(ask_all(url, number, concurrency, build_typed))
                bare.append(ask_bare(url, number, concurrency))
            both = [", ".join(f"{seconds:.2f}" for seconds, _ in sorted(each)) for each in (taken, typed)]
            over = [f"{min(taken)[0] / floor:.3f}" for floor in (ideal, min(bare))]
            per_request = [f"{1000 * min(cpu for _, cpu in each) / number:.2f}" for each in (taken, typed)]
            rows.append([concurrency, f"{ideal:.2f}", f"{min(bare):.2f}", *both, *over, *per_request])
            print(f"  {rows[-1]}", flush=True)
    finally:
        server.kill()
    header = [
        *("at a time", "ideal, s", "bare sockets, best s", "ours, s", "typed client, s", "ours, best over ideal"),
        *("over bare", "CPU ms a request", "typed client, CPU ms"),
    ]
    body = (
        f"{number:,} requests of one step (`Ask`, the cache of replies, the step's file with its fsyncs, the manifest) "
        f"to a server in a process of its own that answers each {SECONDS * 1000:.0f} ms after it came. From the step's "
        "beginning to its end, the client's start included. Bare sockets send the same number and parse no reply: what "
        "this machine takes beside what else it does. Typed client: the engine as it was, with the official client's "
        "`chat.completions` over its transport in Python; ours takes the client's `post` over its transport of "
        "aiohttp.\n\n"
        f"{table(header, rows)}"
    )
    report(f"Constructing: {number:,} requests", body)


def ask_all(url: str, number: int, concurrency: int, build: Build = build_text_engine) -> tuple[float, float]:
    """Samples a reply to each row; gives the seconds of the step, and this process's CPU-seconds."""
    with tempfile.TemporaryDirectory() as folder:
        options = EngineOptions(
            name="openai", model="m", base_url=url, concurrency=concurrency, cache=f"{folder}/replies.sqlite"
        )
        steps = chain_steps(number, {"m": (options, build(options))})
        begin = time.process_time()
        chain = Chain(Path(folder), "speed", steps)
        chain.run(progress=False)
        record = chain.manifest.steps["sample-m"]
        assert record.rows == number and not record.holes, record.holes
        return record.seconds, time.process_time() - begin


def build_typed(options: EngineOptions) -> TextEngine:
    """Builds the engine that asks by the client's typed method, over its transport in Python."""
    import openai

    class Typed(openai.AsyncOpenAI):
        async def post(self, path: str, *, cast_to: Any, body: Any, **others: Any) -> Any:  # type: ignore[override]
            if others:  # the typed method's own call
                return await super().post(path, cast_to=cast_to, body=body, **others)
            return await self.chat.completions.with_raw_response.create(model="m", messages=[], extra_body=body)

    engine: Any = build_text_engine(options)
    own = {"AsyncOpenAI": Typed, "DefaultAioHttpClient": openai.DefaultAsyncHttpxClient}
    engine.engine._openai = SimpleNamespace(**{**vars(openai), **own})
    return engine


def ask_bare(url: str, number: int, concurrency: int) -> float:
    """Sends as many requests by bare sockets, whose replies nobody parses: what this machine takes at least."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": KNOWLEDGE}]}).encode()
    sent = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def one(left: list[None]) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while left:
            left.pop()
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.close()

    async def every() -> None:
        left = [None] * number
        await asyncio.gather(*(one(left) for _ in range(concurrency)))

    begin = time.monotonic()
    asyncio.run(every())
    return time.monotonic() - begin


def chain_steps(number: int, models: dict[str, tuple[EngineOptions, TextEngine | None]]) -> list[Any]:
    """The turns of invented dialogues, and a step for each model."""

    def rows() -> Iterator[Row]:
        for i in range(number):
            told = {"knowledge": f"{KNOWLEDGE}{i}", "history": [["seeker", f"What is it, {i}?"]], "reference": "So."}
            yield {KEY: f"{i // 5}:{i % 5}", "dialogue": str(i // 5), "turn": i % 5, **told}

    steps: list[Any] = [Source(name="inputs", read=rows, settings={"number": number})]
    for name, (options, engine) in models.items():
        ask = asking(f"sample-{name}", name, options, engine)
        steps.append(Step(name=ask.step, work=ask, settings={}, after=("inputs",), branch=name, portion=ask.portion))
    return steps


def asking(step: str, model: str, options: EngineOptions, engine: TextEngine | None) -> Ask:
    """The step of a model: that of the options, or another engine."""

    def read(row: Row, said: Said) -> Row:
        if not said.text:
            return hole(row[KEY], step, "empty")
        return {**row, "model": model, "response": said.text, "target": "No."}

    return Ask(
        step=step,
        options=options,
        prompts={PROMPT.name: PROMPT},
        values=lambda row: {"knowledge": row["knowledge"], "history": row["history"][0][1]},
        read=read,
        pretend=lambda row: row,
        decoding=sampling(1.0, 64, 0),
        build=(lambda _: engine) if engine else build_text_engine,
    )


def start_server() -> tuple[str, multiprocessing.Process]:
    """Starts the server; gives its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    return f"http://127.0.0.1:{ours.recv()}/v1", process  # type: ignore[return-value]


def serve(pipe: Any) -> None:
    """Answers every request alike, a while after it came."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next((int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")), 0)
            await reader.readexactly(length)
            body = ANSWER
            if head.startswith(b"GET"):
                body = b'{"object": "list", "data": [{"id": "m", "object": "model"}]}'
            else:
                await asyncio.sleep(SECONDS)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(_quiet(answer), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    # select, unlike epoll, does not round a timer up to whole milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(run())


def _quiet(answer: Any) -> Any:
    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()  # whoever asked is gone

    return answered


class AtOnce:
    """An engine that replies at once; a tenth of its replies is empty."""

    identity = "at once"

    def __init__(self) -> None:
        self.most = 0.0

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Replies from the last request to the first: places are found by keys."""
        self.most = max(self.most, anonymous_mib())
        for request in reversed(requests):
            said = "" if request.id.endswith("0:0") else f"It is {request.id}."
            yield Reply(id=request.id, texts=(said,), finished=(True,))

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Has no probabilities."""
        return (Reply(id=request.id) for request in requests)


def report_memory(sizes: Sequence[int]) -> None:
    """Writes the most memory of whole chains, each in a process of its own."""
    rows = []
    for size in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            begin, steps, most, seconds = pool.apply(run_whole, (size,))
        mib = [f"{number:.0f}" for number in (begin, steps, most)]
        rows.append([f"{size:,}", *mib, f"{seconds:.1f}", f"{2 * size / seconds:,.0f}"])
        print(f"  {rows[-1]}", flush=True)
    mib = ["MiB before", "of the steps", "with the search"]
    header = ["rows before the models", *mib, "CPU-seconds", "replies a CPU-second"]
    body = (
        "Anonymous memory of the process: a source, two models that reply at once (every fiftieth reply is empty: a "
        "hole), a third model behind both branches, HalluDial's files, and the search for texts that stand in two "
        f"splits (equal ones; it keeps 50,000 held-out texts at most).\n\n{table(header, rows)}"
    )
    report(f"Constructing: memory, {max(sizes):,} rows", body)


def run_whole(size: int) -> tuple[float, float, float, float]:
    """Runs a chain and what follows it; gives the memory before, most of the steps and of all, and the CPU-seconds."""
    begin, options = time.process_time(), EngineOptions(name="openai", model="m", cache=None)
    engine = AtOnce()
    before = anonymous_mib()
    with tempfile.TemporaryDirectory() as folder:
        steps = chain_steps(size, {"one": (options, engine), "two": (options, engine)})
        judge = asking("annotate", "judge", options, engine)
        both = ("sample-one", "sample-two")
        chain = Chain(Path(folder), "speed", [*steps, Step(name="annotate", work=judge, settings={}, after=both)])
        chain.run(progress=False)
        division = Division({"test": 0.4})
        counts = write_halludial(Path(folder), "spontaneous", without_holes(chain.rows("annotate")), division)

        def texts() -> Iterator[TextInSplit]:
            for number, row in enumerate(without_holes(chain.rows("annotate"))):
                if number % 10_000 == 0:
                    engine.most = max(engine.most, anonymous_mib())
                yield TextInSplit(division.split_of(row["dialogue"]), row["dialogue"], row["knowledge"])

        of_steps = engine.most
        find_shared_texts(texts, None)
        assert sum(counts.values()) + sum(chain.manifest.steps["annotate"].holes.values()) == 2 * size
        return before, of_steps, engine.most, time.process_time() - begin


if __name__ == "__main__":
    main()
