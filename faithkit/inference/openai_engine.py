"""Asks an OpenAI-compatible server: OpenAI's own, vLLM, or any other that answers chat completions.

What a server has beyond OpenAI's interface is used where its list of models says that it is vLLM: `choices` of a form
become `structured_outputs`, and `min_new_tokens` and `repetition_penalty` are sent. Elsewhere choices are left out, and
these two settings refused. A `schema` is asked for as `response_format`; a server that refuses it is asked without.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from faithkit.checks import check_number
from faithkit.errors import UserError
from faithkit.inference.concurrently import run_concurrently
from faithkit.inference.decoding import BEAM, Decoding
from faithkit.inference.openai_messages import (
    Answer,
    Models,
    Unusable,
    add_samples,
    generation_settings,
    read_answer,
    read_models,
    read_texts,
    weigh_choices,
)
from faithkit.inference.openai_server import LateCertificates, is_about, read_server
from faithkit.inference.text import Form, Reply, Request, check_requests
from faithkit.inference.usage import Price, Usage

log = logging.getLogger(__name__)
CONNECT_SECONDS = 10.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0  # seconds before an unusable answer is asked for again: as long as the client waits
LONGEST_RETRY_AFTER = 120.0  # seconds that the client waits at most where a server says how long
FEWEST_LOST = 3  # requests in a row without any answer, before the server counts as gone
TOP_LOGPROBS = {20: 5, 5: 0}  # how many likeliest tokens are asked for, and how many after a refusal
Outcome = TypeVar("Outcome")


class OpenAiEngine:
    """Asks a server through the official client, many requests at a time.

    What fails for a while (a limited rate, a fault of the server, a broken connection) is tried again by the client,
    with waits that double, or as long as the server's Retry-After says.

    Args:
        model: As the server calls it.
        base_url: Of a server other than OpenAI's, such as http://localhost:8000/v1.
        api_key_variable: The environment variable with the key; with a `base_url` it may be unset.
        concurrency: Requests that are open at a time.
        max_retries: Tries after the first.
        malformed_retries: Tries after an answer of no use: half a body, none that is JSON, an empty text.
        timeout_seconds: Of silence, in one try.
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
        self._openai, self._http = _import_client()
        self._certificates = LateCertificates(self._http.create_ssl_context)
        self.concurrency, self.max_retries, self.malformed_retries = concurrency, max_retries, malformed_retries
        self.timeout_seconds = timeout_seconds
        self.usage = Usage(price=price)
        self._models: Models | None = None  # until the server has been looked at
        self._lost = 0  # requests in a row that nothing answered
        self._holds_forms, self._top_logprobs, self._limits_rate = True, max(TOP_LOGPROBS), False

    @property
    def identity(self) -> str:
        return f"openai {self._server.url} {self._server.model}"

    @property
    def _known_models(self) -> Models:
        return self._models or Models()

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields replies as they end."""
        if decoding.strategy == BEAM:
            raise UserError("servers search no beams", hint="use decoding=greedy or nucleus")

        async def write(client: Any, request: Request) -> Reply:
            reply = Reply(id=request.id)
            while len(reply.texts) < decoding.num_samples:  # some servers write one text, whatever they are asked for
                answer, texts = await self._write(client, request, decoding, form, len(reply.texts))
                reply = add_samples(reply, answer, texts[: decoding.num_samples - len(reply.texts)])
            return reply

        return self._run(requests, write)

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields relative probabilities from the first tokens; none where the server does not tell them."""

        async def weigh(client: Any, request: Request) -> Reply:
            while self._top_logprobs:
                asked = self._top_logprobs
                settings = {"temperature": 0.0, "logprobs": True, "top_logprobs": asked}
                try:
                    answer, found = await self._ask(client, request, settings, 1, lambda a: weigh_choices(a, choices))
                    return replace(add_samples(Reply(id=request.id), answer, []), probabilities=found)
                except self._openai.APIStatusError as error:
                    if not is_about(error, "logprobs"):
                        raise
                if self._top_logprobs == asked:  # the first request that was refused
                    self._top_logprobs = TOP_LOGPROBS[asked]
                    log.info("the server refuses to tell the probabilities of the %d likeliest tokens", asked)
            return Reply(id=request.id)

        return self._run(requests, weigh)

    def _run(self, requests: Sequence[Request], work: Callable[[Any, Request], Any]) -> Iterator[Reply]:
        check_requests(requests)

        async def answer(client: Any, request: Request) -> Reply:
            try:
                reply = await work(client, request)
            except (Unusable, UnicodeEncodeError, TimeoutError, self._openai.APIError) as error:
                self.usage.failed += 1
                return Reply(id=request.id, problem=self._explain(error))
            self.usage.answered += 1
            return reply

        return run_concurrently(requests, answer, self._open, self.concurrency)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        timeout = self._openai.Timeout(self.timeout_seconds, connect=min(CONNECT_SECONDS, self.timeout_seconds))
        async with self._openai.AsyncOpenAI(
            api_key=self._server.key,
            base_url=self._server.url,
            max_retries=self.max_retries,
            timeout=timeout,
            # Half of the processor time of the client's other transport, which parses HTTP in Python.
            http_client=self._openai.DefaultAioHttpClient(
                verify=self._certificates,
                event_hooks={"request": [self._note_request], "response": [self._note_response]},
            ),
        ) as client:
            if self._models is None:
                self._models = await self._look(client)
            yield client

    async def _note_request(self, request: Any) -> None:
        if request.method == "POST":
            self.usage.sent += 1
            self.usage.retries += request.headers.get("x-stainless-retry-count", "0") != "0"  # the client's own count

    async def _note_response(self, response: Any) -> None:
        if response.status_code == 429 and not self._limits_rate:
            self._limits_rate = True
            log.info("the server limits the rate: requests wait as it asks; a lower engine.concurrency may help")

    async def _look(self, client: Any) -> Models:
        """Asks for the list of models, which costs nothing: a server that is down is told at once."""
        try:
            answer = await client.with_options(max_retries=min(1, self.max_retries)).models.with_raw_response.list()
            return read_models(answer.content)
        except self._openai.APIConnectionError as error:
            raise self._server.unreachable(error, has_answered=False) from error
        except self._openai.APIError:
            return Models()  # some servers have no list, and some keys may not see it

    async def _write(
        self, client: Any, request: Request, decoding: Decoding, form: Form | None, first: int
    ) -> tuple[Answer, list[tuple[str, bool]]]:
        held = form if self._holds_forms else None
        settings = generation_settings(decoding, held, request, first=first, on_vllm=self._known_models.are_vllm)
        try:
            return await self._ask(client, request, settings, decoding.max_new_tokens, read_texts)
        except self._openai.APIStatusError as error:
            if held is None or not is_about(error, "response_format", "json_schema", "structured_outputs"):
                raise
        if self._holds_forms:
            self._holds_forms = False
            log.warning("the server refuses to hold the model to a form; it is asked without")
        return await self._write(client, request, decoding, None, first)

    async def _ask(
        self,
        client: Any,
        request: Request,
        settings: dict[str, Any],
        max_tokens: int,
        read: Callable[[Answer], Outcome],
    ) -> tuple[Answer, Outcome]:
        """Sends a request until its answer can be read."""
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        limit = "max_completion_tokens" if self._server.is_openai else "max_tokens"  # OpenAI's newer models refuse it
        others = {**settings, **settings.get("extra_body", {})}
        others.pop("extra_body", None)
        sent = {"model": self._server.model, "messages": messages, limit: max_tokens, **others}
        for tries in range(self.malformed_retries + 1):
            try:
                async with asyncio.timeout((self.max_retries + 1) * (self.timeout_seconds + LONGEST_RETRY_AFTER)):
                    # By its path, past the client's types for each message and answer: a fifth of its time.
                    raw = await client.post("/chat/completions", cast_to=self._http.Response, body=sent)
                self._lost = 0
                answer = read_answer(raw.content)
                self.usage.prompt_tokens += answer.tokens.prompt_tokens
                self.usage.new_tokens += answer.tokens.completion_tokens
                return answer, read(answer)
            except Unusable as error:
                if error.final or tries == self.malformed_retries:
                    raise
                self.usage.retries += 1
                await asyncio.sleep(min(FIRST_WAIT * 2**tries, LONGEST_WAIT))
            except self._openai.APIStatusError:
                self._lost = 0
                raise
        raise AssertionError("the last try returns or raises")

    def _explain(self, error: Exception) -> str:
        """Says why a request has no reply; raises what concerns all requests alike."""
        openai, server = self._openai, self._server
        if isinstance(error, openai.APIStatusError):
            answered = self.usage.answered > 0
            if (found := server.explain_for_all(error, self._known_models, has_answered=answered)) is not None:
                raise found from error
            return server.explain_one(error)
        if isinstance(error, openai.APIConnectionError):
            self._lost += 1
            if self._lost >= max(self.concurrency, FEWEST_LOST):
                raise server.unreachable(error, has_answered=self.usage.answered > 0) from error
            return f"no answer after {self.max_retries + 1} tries: {type(error.__cause__ or error).__name__}"
        if isinstance(error, TimeoutError):
            return "no whole answer within the time for all tries"
        if isinstance(error, UnicodeEncodeError):
            return "the messages hold half a character (a lone surrogate)"
        return str(error)


def _import_client() -> tuple[Any, Any]:
    """Imports the client late, and the HTTP library below it: only who asks a server needs these seconds."""
    try:
        import aiohttp  # noqa: F401 - of DefaultAioHttpClient
        import httpx2
        import openai
    except ImportError as error:
        raise UserError("engine=openai needs the package openai[aiohttp]", hint="pip install '.[openai]'") from error
    return openai, httpx2
