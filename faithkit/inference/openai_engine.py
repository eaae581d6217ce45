"""Asks an OpenAI-compatible server: OpenAI itself, vLLM, or any other with chat completions.

vLLM is recognised by its list of models. It also gets `choices` of a form as `structured_outputs`, `min_new_tokens` and
`repetition_penalty`; for other servers choices are left out, and these two settings are refused. A `schema` is sent as
`response_format`, and left out after the server has refused it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from faithkit.errors import UserError, raise_problems
from faithkit.inference.openai_server import (
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    NO_LIMIT,
    OPENAI,
    Answer,
    ServerOptions,
    UnusableAnswer,
    check_client,
    generation_settings,
    is_about,
    read_answer,
    read_models,
    read_server,
    weigh_choices,
)
from faithkit.inference.text import AUTO, BEAM, Decoding, Form, Reply, Request, check_unique_ids
from faithkit.packages import needs_package

log = logging.getLogger(__name__)
TOP_LOGPROBS = {20: 5, 5: 0}  # how many likeliest tokens are requested, and how many after a refusal
THREAD_NAME = "faithkit-requests"


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts over the life of an engine; tokens are counted by the server.

    Args:
        sent: Requests sent over the network, including retries.
        retries: Requests sent again after a failure.
        answered: Requests with a reply.
        failed: Requests with a problem instead.
        price: US dollars for a million tokens that are read, and that are written; without it the cost is unknown.
    """

    sent: int = 0
    retries: int = 0
    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    price: tuple[float, float] | None = None

    @property
    def cost(self) -> float | None:
        """Returns US dollars at the full price; discounts, as for cached prompts, are not known."""
        if self.price is None:
            return None
        return (self.prompt_tokens * self.price[0] + self.new_tokens * self.price[1]) / 1_000_000

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
    """

    def __init__(self, model: str, options: ServerOptions):
        self._server = read_server(model, options.base_url, options.api_key_variable)
        with needs_package("engine=openai"):  # here, because it takes seconds
            import aiohttp  # noqa: F401 - of DefaultAioHttpClient
            import openai
        raise_problems(check_client())
        self._openai, self.options = openai, options
        self.usage = Usage(price=options.price)
        self._models: list[str] | None = None  # until the first session
        self._on_vllm = False
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
                answer = await self._write(client, request, decoding, form, len(reply.texts))
                if answer.empty:
                    raise UnusableAnswer(answer.empty)
                reply = replace(
                    reply,
                    texts=(*reply.texts, *answer.texts)[: decoding.num_samples],
                    finished=(*reply.finished, *answer.finished)[: decoding.num_samples],
                    prompt_tokens=reply.prompt_tokens + answer.prompt_tokens,
                    new_tokens=reply.new_tokens + answer.new_tokens,
                )
            return reply

        return self._run(requests, write)

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields relative probabilities from the first tokens; none if the server does not return them."""

        async def weigh(client: Any, request: Request) -> Reply:
            while count := self._top_logprobs:
                settings = {"temperature": 0.0, "logprobs": True, "top_logprobs": count}
                try:
                    answer = await self._ask(client, request, settings, 1)
                    return Reply(
                        id=request.id,
                        probabilities=weigh_choices(answer, choices),
                        prompt_tokens=answer.prompt_tokens,
                        new_tokens=answer.new_tokens,
                    )
                except self._openai.APIStatusError as error:
                    if not is_about(error, "logprobs"):
                        raise
                self._top_logprobs = min(self._top_logprobs, TOP_LOGPROBS[count])
            return Reply(id=request.id)

        return self._run(requests, weigh)

    def _run(self, requests: Sequence[Request], work: Callable[[Any, Request], Awaitable[Reply]]) -> Iterator[Reply]:
        check_unique_ids("requests", requests)

        async def answer(client: Any, request: Request) -> Reply:
            try:
                reply = await work(client, request)
            except (UnusableAnswer, UnicodeEncodeError, TimeoutError, self._openai.APIError) as error:
                self.usage.failed += 1
                return Reply(id=request.id, problem=self._explain(error))
            self.usage.answered += 1
            return reply

        return run_concurrently(requests, answer, self._open_client, self.options.concurrency)

    @asynccontextmanager
    async def _open_client(self) -> AsyncIterator[Any]:
        seconds = self.options.timeout_seconds
        async with self._openai.AsyncOpenAI(
            api_key=self._server.key,
            base_url=self._server.url,
            max_retries=self.options.max_retries,
            timeout=self._openai.Timeout(seconds, connect=min(10.0, seconds)),
            # The default transport parses HTTP in Python and needs twice the processor time.
            http_client=self._openai.DefaultAioHttpClient(
                event_hooks={"request": [self._count_request], "response": [self._note_response]}
            ),
        ) as client:
            if self._models is None:  # their list is free: a server that is down is reported at once
                try:
                    hasty = client.with_options(max_retries=min(1, self.options.max_retries))
                    answer = await hasty.models.with_raw_response.list()
                    self._models, self._on_vllm = read_models(answer.content)
                except self._openai.APIConnectionError as error:
                    raise self._server.unreachable(error, has_answered=False) from error
                except self._openai.APIError:
                    self._models = []  # some servers have no list, and some keys may not read it
            yield client

    async def _count_request(self, request: Any) -> None:
        if request.method == "POST":
            self.usage.sent += 1
            self.usage.retries += request.headers.get("x-stainless-retry-count", "0") != "0"  # the client's count

    async def _note_response(self, response: Any) -> None:
        self._num_lost = 0
        if response.status_code == 429 and not self._limits_rate:
            self._limits_rate = True
            log.info("the server limits the rate: requests wait as it asks; a lower engine.concurrency may help")

    async def _write(self, client: Any, request: Request, decoding: Decoding, form: Form | None, first: int) -> Answer:
        sent_form = form if self._takes_schema else None
        settings = generation_settings(decoding, sent_form, request, first=first, on_vllm=self._on_vllm)
        try:
            return await self._ask(client, request, settings, decoding.max_new_tokens)
        except self._openai.APIStatusError as error:
            if sent_form is None or not is_about(error, "response_format", "json_schema", "structured_outputs"):
                raise
        if self._takes_schema:
            self._takes_schema = False
            log.warning("the server refuses to constrain replies to a form; requests are sent without it")
        return await self._write(client, request, decoding, None, first)

    async def _ask(self, client: Any, request: Request, settings: dict[str, Any], max_tokens: int) -> Answer:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        limit = self.options.max_tokens_field
        if limit == AUTO:
            limit = MAX_COMPLETION_TOKENS if self._server.url == OPENAI else MAX_TOKENS
        sent = {"model": self._server.model, "messages": messages, **settings}
        sent |= {} if limit == NO_LIMIT else {limit: max_tokens}
        if request.template:
            if not self._on_vllm:
                problem = f"this model's chat template reads {', '.join(request.template)}, which only vLLM passes on"
                raise UserError(problem, place=self._server.url, hint="serve the model with vLLM")
            variables = {"chat_template_kwargs": dict(request.template)}
            sent["extra_body"] = {**settings.get("extra_body", {}), **variables}
        # The client's timeout is for each read: a server could send one byte at a time for ever.
        # It waits at most two minutes for a server's Retry-After.
        seconds = (self.options.max_retries + 1) * (self.options.timeout_seconds + 120.0)
        for remaining in (2, 1, 0):  # tries after an answer that is truncated or in another format
            async with asyncio.timeout(seconds):
                response = await client.chat.completions.with_raw_response.create(**sent)
            try:
                answer = read_answer(response.content)
                break
            except UnusableAnswer:
                if not remaining:
                    raise
                self.usage.retries += 1
        self.usage.prompt_tokens += answer.prompt_tokens
        self.usage.new_tokens += answer.new_tokens
        return answer

    def _explain(self, error: Exception) -> str:
        """Explains why a request has no reply; raises an error that concerns all requests."""
        openai, server = self._openai, self._server
        has_answered = self.usage.answered > 0
        if isinstance(error, openai.APIStatusError):
            found = server.explain(error, self._models or [], has_answered=has_answered)
            if isinstance(found, UserError):
                raise found from error
            return found
        if isinstance(error, openai.APIConnectionError):
            self._num_lost += 1
            if self._num_lost >= max(self.options.concurrency, 3):  # the server counts as stopped
                raise server.unreachable(error, has_answered=has_answered) from error
            return f"no answer after {self.options.max_retries + 1} tries: {type(error.__cause__ or error).__name__}"
        if isinstance(error, TimeoutError):
            return "no complete answer within the time for all tries"
        if isinstance(error, UnicodeEncodeError):
            return "the messages contain half a character (a lone surrogate)"
        return str(error)


def run_concurrently(
    items: Iterable[Any],
    work: Callable[[Any, Any], Awaitable[Any]],
    open_session: Callable[[], AbstractAsyncContextManager[Any]],
    concurrency: int,
) -> Iterator[Any]:
    """Runs asynchronous work in a thread with an event loop, and yields the results as they arrive, in any order.

    A new item starts once the caller has processed a result, so at most `concurrency` results are lost if the process
    is killed. When the caller stops (an error, a signal, a closed iterator), all open work is cancelled.

    Args:
        work: An exception in it ends the iteration, after the results that have arrived are yielded.
        open_session: Opens what the items share, such as a client's connections.
    """
    from anyio.from_thread import start_blocking_portal  # a dependency of the client

    unstarted = iter(items)
    running: set[Future[Any]] = set()
    with (
        start_blocking_portal(name=THREAD_NAME) as portal,
        portal.wrap_async_context_manager(open_session()) as session,
    ):
        try:
            running = {portal.start_task_soon(work, session, item) for item in islice(unstarted, concurrency)}
            while running:
                wait(running, return_when=FIRST_COMPLETED)
                # Failures last: the replies that have arrived may have cost money.
                for future in sorted((f for f in running if f.done()), key=lambda f: f.exception() is not None):
                    running.discard(future)
                    yield future.result()
                    running |= {portal.start_task_soon(work, session, item) for item in islice(unstarted, 1)}
        finally:
            for future in running:
                future.cancel()
