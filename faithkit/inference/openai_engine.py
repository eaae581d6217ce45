"""Asks an OpenAI-compatible server: OpenAI itself, vLLM, or any other with chat completions.

vLLM is recognised by its list of models. It also gets `choices` of a form as `structured_outputs`, `min_new_tokens` and
`repetition_penalty`; for other servers choices are left out, and these two settings are refused. A `schema` is sent as
`response_format`, and left out after the server has refused it.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, TypeVar

from faithkit.checks import check_number
from faithkit.errors import UserError
from faithkit.inference.decoding import BEAM, Decoding
from faithkit.inference.openai_server import (
    Answer,
    Models,
    UnusableAnswer,
    add_samples,
    generation_settings,
    is_about,
    read_answer,
    read_models,
    read_server,
    read_texts,
    weigh_choices,
)
from faithkit.inference.text import Form, Reply, Request, check_requests

log = logging.getLogger(__name__)
CONNECT_SECONDS = 10.0
FIRST_WAIT, MAX_WAIT = 0.5, 8.0  # seconds before an unusable answer is requested again, like the client's own waits
MAX_RETRY_AFTER = 120.0  # seconds that the client waits at most for a server's Retry-After
MIN_LOST = 3  # requests in a row without any answer before the server counts as stopped
TOP_LOGPROBS = {20: 5, 5: 0}  # how many likeliest tokens are requested, and how many after a refusal
CLOSING_SECONDS = 5.0  # for open connections to close; the thread never blocks the end of the process
THREAD_NAME = "faithkit-requests"
MILLION = 1_000_000

Session = TypeVar("Session")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model's tokens, in US dollars per million.

    Args:
        prompt: For tokens that it reads.
        new: For tokens that it writes.
    """

    prompt: float
    new: float

    def __post_init__(self) -> None:
        check_number("price.prompt", self.prompt, 0, MILLION)
        check_number("price.new", self.new, 0, MILLION)


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts over the life of an engine; tokens are counted by the server, including those of unusable answers.

    Args:
        sent: Requests sent over the network, including retries.
        retries: Requests sent again after a failure.
        answered: Requests with a reply.
        failed: Requests with a problem instead.
        price: Without it the cost is unknown.
    """

    sent: int = 0
    retries: int = 0
    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    price: Price | None = None

    @property
    def cost(self) -> float | None:
        """Returns US dollars at the full price; discounts, as for cached prompts, are not known."""
        if self.price is None:
            return None
        return (self.prompt_tokens * self.price.prompt + self.new_tokens * self.price.new) / MILLION

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        cost = "" if self.cost is None else f", {self.cost:.4f} dollars"
        tokens = f"{self.prompt_tokens:,} tokens read, {self.new_tokens:,} written"
        return f"{self.answered:,} requests answered{failed}, {self.retries:,} retries, {tokens}{cost}"


class OpenAiEngine:
    """Asks a server through the official client, many requests at a time.

    The client retries temporary failures (rate limits, server errors, broken connections) with doubling waits, or as
    the server's Retry-After says.

    Args:
        model: The model's name on the server.
        base_url: The URL of a server other than OpenAI's, such as http://localhost:8000/v1.
        api_key_variable: The environment variable with the key; optional with a `base_url`.
        concurrency: Requests that are open at a time.
        max_retries: Tries after the first.
        malformed_retries: Tries after an unusable answer: truncated, not JSON, or empty.
        timeout_seconds: Maximum silence in one try.
        price: For the cost in `usage`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        max_retries: int = 6,
        malformed_retries: int = 2,
        timeout_seconds: float = 120.0,
        price: Price | None = None,
    ):
        check_number("engine.concurrency", concurrency, 1, 1000, whole=True)
        check_number("engine.max_retries", max_retries, 0, 100, whole=True)
        check_number("engine.malformed_retries", malformed_retries, 0, 100, whole=True)
        check_number("engine.timeout_seconds", timeout_seconds, 0.001, 86_400)
        self._server = read_server(model, base_url, api_key_variable)
        self._openai = _import_openai()
        self.concurrency, self.max_retries, self.malformed_retries = concurrency, max_retries, malformed_retries
        self.timeout_seconds = timeout_seconds
        self.usage = Usage(price=price)
        self._models: Models | None = None  # until the first session
        self._num_lost = 0  # requests in a row without any answer
        self._takes_schema, self._top_logprobs, self._limits_rate = True, max(TOP_LOGPROBS), False

    @property
    def identity(self) -> str:
        return f"openai {self._server.url} {self._server.model}"

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields replies as they arrive."""
        if decoding.strategy == BEAM:
            raise UserError("servers search no beams", hint="use decoding=greedy or nucleus")

        async def write(client: Any, request: Request) -> Reply:
            reply = Reply(id=request.id)
            while len(reply.texts) < decoding.num_samples:  # some servers ignore `n` and return one text
                answer, texts = await self._write(client, request, decoding, form, len(reply.texts))
                reply = add_samples(reply, answer, texts[: decoding.num_samples - len(reply.texts)])
            return reply

        return self._run(requests, write)

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields relative probabilities from the first tokens; none if the server does not return them."""

        async def weigh(client: Any, request: Request) -> Reply:
            while count := self._top_logprobs:
                settings = {"temperature": 0.0, "logprobs": True, "top_logprobs": count}
                try:
                    answer, found = await self._ask(client, request, settings, 1, lambda a: weigh_choices(a, choices))
                    return replace(add_samples(Reply(id=request.id), answer, []), probabilities=found)
                except self._openai.APIStatusError as error:
                    if not is_about(error, "logprobs"):
                        raise
                self._top_logprobs = min(self._top_logprobs, TOP_LOGPROBS[count])
            return Reply(id=request.id)

        return self._run(requests, weigh)

    def _run(self, requests: Sequence[Request], work: Callable[[Any, Request], Awaitable[Reply]]) -> Iterator[Reply]:
        check_requests(requests)

        async def answer(client: Any, request: Request) -> Reply:
            try:
                reply = await work(client, request)
            except (UnusableAnswer, UnicodeEncodeError, TimeoutError, self._openai.APIError) as error:
                self.usage.failed += 1
                return Reply(id=request.id, problem=self._explain(error))
            self.usage.answered += 1
            return reply

        return run_concurrently(requests, answer, self._open_client, self.concurrency)

    @asynccontextmanager
    async def _open_client(self) -> AsyncIterator[Any]:
        async with self._openai.AsyncOpenAI(
            api_key=self._server.key,
            base_url=self._server.url,
            max_retries=self.max_retries,
            timeout=self._openai.Timeout(self.timeout_seconds, connect=min(CONNECT_SECONDS, self.timeout_seconds)),
            # The default transport parses HTTP in Python and needs twice the processor time.
            http_client=self._openai.DefaultAioHttpClient(
                event_hooks={"request": [self._count_request], "response": [self._note_rate_limit]}
            ),
        ) as client:
            if self._models is None:
                self._models = await self._list_models(client)
            yield client

    async def _count_request(self, request: Any) -> None:
        if request.method == "POST":
            self.usage.sent += 1
            self.usage.retries += request.headers.get("x-stainless-retry-count", "0") != "0"  # the client's count

    async def _note_rate_limit(self, response: Any) -> None:
        if response.status_code == 429 and not self._limits_rate:
            self._limits_rate = True
            log.info("the server limits the rate: requests wait as it asks; a lower engine.concurrency may help")

    async def _list_models(self, client: Any) -> Models:
        """Requests the list of models, which is free: a server that is down is reported at once."""
        try:
            answer = await client.with_options(max_retries=min(1, self.max_retries)).models.with_raw_response.list()
            return read_models(answer.content)
        except self._openai.APIConnectionError as error:
            raise self._server.unreachable(error, has_answered=False) from error
        except self._openai.APIError:
            return Models()  # some servers have no list, and some keys may not read it

    async def _write(
        self, client: Any, request: Request, decoding: Decoding, form: Form | None, first: int
    ) -> tuple[Answer, list[tuple[str, bool]]]:
        sent_form = form if self._takes_schema else None
        on_vllm = self._models is not None and self._models.are_vllm
        settings = generation_settings(decoding, sent_form, request, first=first, on_vllm=on_vllm)
        try:
            return await self._ask(client, request, settings, decoding.max_new_tokens, read_texts)
        except self._openai.APIStatusError as error:
            if sent_form is None or not is_about(error, "response_format", "json_schema", "structured_outputs"):
                raise
        if self._takes_schema:
            self._takes_schema = False
            log.warning("the server refuses to constrain replies to a form; requests are sent without it")
        return await self._write(client, request, decoding, None, first)

    async def _ask(
        self, client: Any, request: Request, settings: dict[str, Any], max_tokens: int, read: Callable[[Answer], Result]
    ) -> tuple[Answer, Result]:
        """Sends a request until its answer can be read."""
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        limit = "max_completion_tokens" if self._server.is_openai else "max_tokens"  # OpenAI's newer models refuse it
        sent = {"model": self._server.model, "messages": messages, limit: max_tokens, **settings}
        for tries in range(self.malformed_retries + 1):
            try:
                # The client's timeout is for each read: a server could send one byte at a time for ever.
                async with asyncio.timeout((self.max_retries + 1) * (self.timeout_seconds + MAX_RETRY_AFTER)):
                    response = await client.chat.completions.with_raw_response.create(**sent)
                self._num_lost = 0
                answer = read_answer(response.content)
                self.usage.prompt_tokens += answer.tokens.prompt_tokens
                self.usage.new_tokens += answer.tokens.completion_tokens
                return answer, read(answer)
            except UnusableAnswer as error:
                if error.final or tries == self.malformed_retries:
                    raise
                self.usage.retries += 1
                await asyncio.sleep(min(FIRST_WAIT * 2**tries, MAX_WAIT))
            except self._openai.APIStatusError:
                self._num_lost = 0
                raise
        raise AssertionError("the last try returns or raises")

    def _explain(self, error: Exception) -> str:
        """Explains why a request has no reply; raises an error that concerns all requests."""
        openai, server = self._openai, self._server
        has_answered = self.usage.answered > 0
        if isinstance(error, openai.APIStatusError):
            found = server.explain_for_all(error, self._models or Models(), has_answered=has_answered)
            if found is not None:
                raise found from error
            return server.explain_one(error)
        if isinstance(error, openai.APIConnectionError):
            self._num_lost += 1
            if self._num_lost >= max(self.concurrency, MIN_LOST):
                raise server.unreachable(error, has_answered=has_answered) from error
            return f"no answer after {self.max_retries + 1} tries: {type(error.__cause__ or error).__name__}"
        if isinstance(error, TimeoutError):
            return "no complete answer within the time for all tries"
        if isinstance(error, UnicodeEncodeError):
            return "the messages contain half a character (a lone surrogate)"
        return str(error)


def _import_openai() -> Any:
    """Imports the client, which takes seconds, only when a server is used."""
    try:
        import aiohttp  # noqa: F401 - of DefaultAioHttpClient
        import openai
    except ImportError as error:
        raise UserError("engine=openai needs the package openai[aiohttp]", hint="pip install '.[openai]'") from error
    return openai


def run_concurrently(
    items: Iterable[Item],
    work: Callable[[Session, Item], Awaitable[Result]],
    open_session: Callable[[], AbstractAsyncContextManager[Session]],
    concurrency: int,
) -> Iterator[Result]:
    """Runs asynchronous work in a thread with an event loop, and yields the results as they arrive, in any order.

    A new item starts once the caller has processed a result, so at most `concurrency` results are lost if the process
    is killed. When the caller stops (an error, a signal, a closed iterator), all open work is cancelled.

    Args:
        work: An exception in it ends the iteration, after the results that have arrived are yielded.
        open_session: Opens what the items share, such as a client's connections.
    """
    loop = asyncio.new_event_loop()
    free_places = asyncio.Semaphore(concurrency)
    outcomes: SimpleQueue[tuple[Any, BaseException | None] | None] = SimpleQueue()

    async def run_item(session: Session, item: Item) -> None:
        try:
            outcomes.put((await work(session, item), None))
        except Exception as error:
            outcomes.put((None, error))

    async def run_all() -> None:
        async with open_session() as session, asyncio.TaskGroup() as tasks:
            for item in items:
                await free_places.acquire()
                tasks.create_task(run_item(session, item))

    def run_loop() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(run_all())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            outcomes.put((None, error))
        outcomes.put(None)

    def call_in_loop(function: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: all work has ended
            loop.call_soon_threadsafe(function)

    def stop() -> None:
        call_in_loop(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        if thread.ident is not None:
            thread.join(CLOSING_SECONDS)

    thread = threading.Thread(target=run_loop, name=THREAD_NAME, daemon=True)
    try:
        thread.start()
        while (outcome := outcomes.get()) is not None:
            result, error = outcome
            if error is not None:
                stop()
                while not outcomes.empty():  # replies that have arrived may have cost money
                    if (outcome := outcomes.get()) is not None and outcome[1] is None:
                        yield outcome[0]
                raise error
            yield result
            call_in_loop(free_places.release)
    finally:
        stop()
