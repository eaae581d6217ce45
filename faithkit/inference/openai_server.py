"""An OpenAI-compatible server: its address and key, its chat completions, and the meaning of its errors."""

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from faithkit.errors import UserError, nearest, shorten
from faithkit.inference.text import AUTO, NUCLEUS, Decoding, Form, Request, seed_of
from faithkit.settings.check import options
from faithkit.settings.types import Count, Hint, NonNegative, NonNegativeInt, OneOf, Positive, Text

OPENAI = "https://api.openai.com/v1"
OLDEST_CLIENT = (3, 54)  # as in pyproject.toml; older ones need another package for aiohttp
MAX_TOKENS, MAX_COMPLETION_TOKENS, NO_LIMIT = "max_tokens", "max_completion_tokens", "none"
NO_KEY = "none"  # sent to servers that need no key: the client always sends one
BAD_URL_HINT = "engine.base_url=http://localhost:8000/v1"
# How servers describe a prompt that is too long: OpenAI, vLLM and SGLang, llama.cpp, others.
_TOO_LONG = re.compile(
    r"context[ _]length|context[ _]window|context size|maximum (context|input|model) length|max_model_len"
    r"|(prompt|input|request) is too long|too many (input )?tokens|longer than the (model|maximum)",
    re.IGNORECASE,
)
# Settings of every request, and what to type if a model refuses one.
_SETTINGS = {
    **dict.fromkeys(("temperature", "top_p"), "decoding=nucleus decoding.temperature=1 decoding.top_p=1"),
    **dict.fromkeys(
        (MAX_TOKENS, MAX_COMPLETION_TOKENS),
        "engine.max_tokens_field=max_completion_tokens, max_tokens or none; or another decoding.max_new_tokens",
    ),
    **dict.fromkeys(("seed", "n"), "decoding=greedy"),
}
_LIKE_A_KEY = re.compile(r"\b(sk|pk|key)-[\w*.-]{4,}")
CUT = "length"  # the finish reason at max_new_tokens
# Why an answer is empty, by its finish reason.
_EMPTY = {
    CUT: "the answer is empty: max_new_tokens were spent before it began",  # as by models that reason first
    "content_filter": "the server's content filter withholds the answer",
}


@options()
class ServerOptions:
    """The part of the block `engine` that is about a server.

    Args:
        base_url: Of a server; None for OpenAI's.
        api_key_variable: The environment variable with the server's key; optional with a `base_url`.
        concurrency: Requests that a server gets at a time.
        max_retries: Of a request that fails.
        timeout_seconds: Of silence in one try.
        max_tokens_field: The field that limits a reply, of which servers know one or both; `auto` is
            max_completion_tokens for OpenAI, whose newer models refuse max_tokens, and max_tokens for others. `none`
            sends no limit.
        price: Of a million tokens that are read, and of a million that are written, in US dollars.
    """

    base_url: Text | None = None
    api_key_variable: Text = "OPENAI_API_KEY"
    concurrency: Count = 8
    max_retries: NonNegativeInt = 6
    timeout_seconds: Positive = 120.0
    max_tokens_field: Annotated[str, OneOf((AUTO, MAX_TOKENS, MAX_COMPLETION_TOKENS, NO_LIMIT))] = AUTO
    price: Annotated[
        tuple[NonNegative, NonNegative] | None, Field(strict=False), Hint("use [READ,WRITTEN] for a million tokens")
    ] = None


class UnusableAnswer(Exception):
    """An answer that is not in OpenAI's format, or contains no text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The fields of a chat completion that are used.

    Args:
        texts: Some may be empty.
        finished: Whether the model finished each text; otherwise it was cut at `max_tokens`.
        empty: Why there is no text, if all are empty.
        logprobs: Log-probabilities of the likeliest first tokens of the first text; empty if the server has none.
    """

    texts: tuple[str, ...]
    finished: tuple[bool, ...]
    empty: str
    logprobs: tuple[tuple[str, float], ...]
    prompt_tokens: int
    new_tokens: int


def read_answer(content: bytes) -> Answer:
    """Reads the body of an answer.

    Raises:
        UnusableAnswer: It is not JSON, is truncated, or lacks a required field.
    """
    try:
        body = json.loads(content)
        choices, usage = body["choices"], body.get("usage") or {}
        first, texts = choices[0], tuple(choice["message"].get("content") or "" for choice in choices)
        empty = (
            "" if any(text.strip() for text in texts) else _EMPTY.get(first.get("finish_reason"), "the answer is empty")
        )
        positions = (first.get("logprobs") or {}).get("content") or [{}]
        logprobs = tuple((one["token"].strip(), one["logprob"]) for one in positions[0].get("top_logprobs") or ())
        if not all(logprob <= 1e-3 for _, logprob in logprobs):  # a rounded 0 may be slightly above it
            raise UnusableAnswer("the server's answer has log-probabilities above 0")
        return Answer(
            texts,
            tuple(choice.get("finish_reason") != CUT for choice in choices),
            "the model refuses to answer" if empty and first["message"].get("refusal") else empty,
            logprobs,
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, RecursionError) as error:
        raise UnusableAnswer("the server's answer is not JSON") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise UnusableAnswer("the server's answer is not a chat completion") from error


def read_models(content: bytes) -> tuple[list[str], bool]:
    """Reads a list of models: their names, and whether the server is vLLM, which accepts additional settings."""
    try:
        models = [(str(model["id"]), model.get("owned_by")) for model in json.loads(content)["data"]]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return [], False
    return [name for name, _ in models], any(owner == "vllm" for _, owner in models)


def generation_settings(
    decoding: Decoding, form: Form | None, request: Request, *, first: int, on_vllm: bool
) -> dict[str, Any]:
    """Translates the settings of decoding.

    Args:
        first: Number of the first requested sample; earlier samples have arrived.
        on_vllm: The server accepts vLLM's settings.

    Raises:
        UserError: The server does not accept these settings.
    """
    if not on_vllm and (decoding.min_new_tokens or decoding.repetition_penalty != 1.0):
        problem = "min_new_tokens and repetition_penalty need a vLLM server, and this server is not vLLM"
        raise UserError(problem, hint="decoding.min_new_tokens=0 decoding.repetition_penalty=1")
    settings: dict[str, Any] = {"temperature": 0.0}
    if decoding.strategy == NUCLEUS:
        seed = seed_of(decoding.seed, request.id, first, size=4) >> 1  # some servers accept only 31 bits
        settings = {"temperature": decoding.temperature, "top_p": decoding.top_p, "seed": seed}
    if decoding.num_samples - first > 1:
        settings["n"] = decoding.num_samples - first
    if form is not None and form.schema is not None:
        schema = {"name": "reply", "schema": dict(form.schema), "strict": True}
        settings["response_format"] = {"type": "json_schema", "json_schema": schema}
    if on_vllm:  # settings that are not sent come from the model's generation_config.json
        own = {"min_tokens": decoding.min_new_tokens, "repetition_penalty": decoding.repetition_penalty}
        constrained = {"structured_outputs": {"choice": list(form.choices)}} if form and form.choices else {}
        settings["extra_body"] = {**own, "top_k": -1, "min_p": 0.0, **constrained}  # -1 and 0 are off
    return settings


def weigh_choices(answer: Answer, choices: Sequence[str]) -> dict[str, float]:
    """Reads the choices' relative probabilities from the likeliest first tokens.

    A token, stripped of white space, counts for the choice that it equals, that it is the only one to begin ("hall" for
    "hallucinated"), or that it extends by punctuation ("Yes." for "Yes", but not "Yesterday"). It is case-sensitive.
    A choice without any token has 0.

    Returns:
        Empty if the server returns no probabilities, or only those of other tokens.
    """
    weights = dict.fromkeys(choices, 0.0)
    for token, logprob in answer.logprobs:
        begun = [choice for choice in choices if token and choice.startswith(token)]
        beyond = [choice for choice in choices if token.startswith(choice) and not token[len(choice) :][:1].isalnum()]
        if token in weights:
            weights[token] += math.exp(logprob)
        elif len(begun) == 1 or (beyond and not begun):
            weights[begun[0] if begun else max(beyond, key=len)] += math.exp(logprob)
    total = sum(weights.values())
    return {choice: weight / total for choice, weight in weights.items()} if total > 0 else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Address, model and key of a server, and explanations of its errors.

    Args:
        url: Contains no secret.
        key: Never shown.
    """

    url: str
    model: str
    key_variable: str
    key: str = field(repr=False)

    def explain(self, error: Any, models: Sequence[str], *, has_answered: bool) -> UserError | str:
        """Explains why the server refused a request: a `UserError` if it would refuse every request.

        Args:
            error: The client's, with the response's status.
            models: The names of the server's models.
            has_answered: An earlier request was answered.
        """
        status, message = error.status_code, error_message(error)
        words = self.quote(message)
        # Checked before the settings, because some servers blame max_tokens.
        if error.code == "context_length_exceeded" or (status in (400, 413, 422) and _TOO_LONG.search(message)):
            return f"the prompt does not fit into the model's context: {words}"
        if status == 401 or (status == 403 and not has_answered):  # later it may be about the content of a request
            hint = f"export {self.key_variable}=..., a key that may use {self.model}"
            why = "" if status == 401 else f": {words}"  # with 401 servers quote parts of the key
            problem = f"the server refuses the key of {self.key_variable}{why}"
            if self.key == NO_KEY:
                problem = f"the server needs a key, and {self.key_variable} is not set"
        elif status == 404:
            problem = f"the server has no model {shorten(self.model)}"
            hint = "check engine.model, and whether engine.base_url should end with /v1"
            if models:
                others = f" (it has {shorten(', '.join(models))})" if len(models) > 1 else ""
                hint = f"engine.model={(nearest(self.model, models, 1) or models)[0]}{others}"
        elif status == 429 and error.code == "insufficient_quota":
            problem = "the account of the key has no credit left"
            hint = f"add credit to the account, or export {self.key_variable}=..., the key of another"
        elif "chat template" in message.lower():
            problem = "the server's model has no chat template"
            hint = "start the server with --chat-template FILE, or choose a chat model: engine.model=NAME"
        elif status in (400, 422) and (refused := _refused_setting(error)):
            problem, hint = f"the server refuses {refused}: {words}", _SETTINGS[refused]
        elif status == 429:
            return f"the server limits the rate, after all retries: {words}"
        else:
            return f"the server answered {status}: {words}"
        return UserError(problem, place=self.url, hint=hint)

    def unreachable(self, error: BaseException, *, has_answered: bool) -> UserError:
        """Explains a server that does not answer."""
        cause = error.__cause__ or error
        words = self.quote(str(cause) or type(cause).__name__)
        if has_answered:
            hint = "start it again, then run the same command again"
            return UserError(f"the server has stopped answering: {words}", place=self.url, hint=hint)
        hint = f"start the server there, or name another: {BAD_URL_HINT}"
        return UserError(f"no server answers here: {words}", place=self.url, hint=hint)

    def quote(self, text: str) -> str:
        """Quotes a server's message in one line, without secrets."""
        if self.key != NO_KEY:
            text = text.replace(self.key, "***")
        return shorten(_LIKE_A_KEY.sub("***", text), 200)


def error_message(error: Any) -> str:
    """Reads the message of a server's error, which may contain secrets."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str((inner.get("message") if isinstance(inner, dict) else inner) or error)


def _refused_setting(error: Any) -> str | None:
    """Names the setting that a refusal is about: its `param`, or the limit of the reply in its message."""
    if error.param in _SETTINGS:
        return str(error.param)
    return next((name for name in (MAX_TOKENS, MAX_COMPLETION_TOKENS) if is_about(error, name)), None)


def check_client() -> Iterator[UserError]:
    """Yields a problem for a client that is too old, as another package may have it installed; for none, nothing."""
    try:
        found = version("openai")
    except PackageNotFoundError:
        return
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_CLIENT:
        oldest = ".".join(map(str, OLDEST_CLIENT))
        hint = f'pip install "openai[aiohttp]>={oldest}"; ragas needs an older one, so give it its own environment'
        yield UserError(f"engine=openai needs the package openai {oldest} or newer, and this is {found}", hint=hint)


def is_about(error: Any, *settings: str) -> bool:
    """Whether a refusal names one of these settings."""
    words = f"{error.param} {error_message(error)}".lower()
    return error.status_code in (400, 403, 422) and any(name in words for name in settings)


def read_server(model: str, base_url: str | None, key_variable: str) -> Server:
    """Reads and checks address and key.

    Args:
        base_url: The URL of a server other than OpenAI's; None uses the variable OPENAI_BASE_URL if it is set, like the
            client.
        key_variable: The environment variable with the key; optional for other servers.
    """
    if not isinstance(model, str) or not model.strip():
        raise UserError(f"engine.model is {shorten(model)}", hint="engine.model=NAME, as the server calls it")
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).rstrip("/")
    key = os.environ.get(key_variable, "").strip()
    if not key and url == OPENAI:
        hint = f"export {key_variable}=..., or name another server: {BAD_URL_HINT}"
        raise UserError(f"{key_variable} is not set, and OpenAI needs a key", hint=hint)
    if not key.isascii() or not key.isprintable() or " " in key:
        problem = f"{key_variable} contains characters that are not allowed in a key"
        raise UserError(problem, hint=f"export {key_variable}=...")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise UserError("engine.base_url is not a URL", hint=BAD_URL_HINT) from None
    if parts.username or parts.password or parts.query or parts.fragment:  # perhaps secrets, and errors show the URL
        hint = f"remove everything before @ and after ?; {BAD_URL_HINT}, and the key in a variable"
        raise UserError("engine.base_url contains more than an address", hint=hint)
    if not usable:
        raise UserError(f"engine.base_url is {shorten(url)}", hint=BAD_URL_HINT)
    return Server(url=url, model=model, key_variable=key_variable, key=key or NO_KEY)
