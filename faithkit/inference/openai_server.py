"""An OpenAI-compatible server: its address and key, its chat completions, and the meaning of its errors."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faithkit.errors import UserError, nearest, shorten
from faithkit.inference.decoding import NUCLEUS, Decoding, seed_of
from faithkit.inference.text import Form, Reply, Request

OPENAI = "https://api.openai.com/v1"
NO_KEY = "none"  # sent to servers that need no key: the client always sends one
MAX_QUOTE = 200
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
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "decoding.max_new_tokens=100, or more, or fewer"),
    **dict.fromkeys(("seed", "n"), "decoding=greedy"),
}
_LIKE_A_KEY = re.compile(r"\b(sk|pk|key)-[\w*.-]{4,}")
CUT = "length"  # finish reasons: at max_new_tokens, and by the server's filter
WITHHELD = "content_filter"


class UnusableAnswer(Exception):
    """An answer that is not in OpenAI's format, or contains no text."""


class _Part(BaseModel):
    """A part of an answer; additional fields are ignored."""

    model_config = ConfigDict(defer_build=True)


class _Candidate(_Part):
    token: str
    logprob: Annotated[float, Field(le=1e-3)]  # also refuses NaN; a rounded 0 may be slightly above it


class _Position(_Part):
    top_logprobs: list[_Candidate] = []


class _Logprobs(_Part):
    content: list[_Position] | None = None


class _Written(_Part):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Part):
    message: _Written
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Tokens(_Part):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Answer(_Part):
    """The fields of a chat completion that are used."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Tokens | None = None

    @property
    def tokens(self) -> _Tokens:
        return self.usage or _Tokens()


class _Model(_Part):
    id: str
    owned_by: str | None = None


class Models(_Part):
    """A server's list of models."""

    data: list[_Model] = []

    @property
    def are_vllm(self) -> bool:
        """Whether this is a vLLM server, which accepts additional settings."""
        return any(model.owned_by == "vllm" for model in self.data)


def read_answer(content: bytes) -> Answer:
    """Reads the body of an answer.

    Raises:
        UnusableAnswer: It is not JSON, is truncated, or lacks a required field.
    """
    try:
        return Answer.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "is not JSON" if first["type"] == "json_invalid" else f"has no valid {where}"
        raise UnusableAnswer(f"the server's answer {what}") from error


def read_models(content: bytes) -> Models:
    """Reads a list of models; empty if it is not in OpenAI's format."""
    try:
        return Models.model_validate_json(content)
    except ValidationError:
        return Models()


def read_texts(answer: Answer) -> list[tuple[str, bool]]:
    """Returns the texts of an answer, and whether the model finished each; some texts may be empty.

    Raises:
        UnusableAnswer: All are empty.
    """
    texts = [(choice.message.content or "", choice.finish_reason != CUT) for choice in answer.choices]
    if any(text.strip() for text, _ in texts):
        return texts
    first = answer.choices[0]
    if first.message.refusal:
        raise UnusableAnswer("the model refuses to answer")
    if first.finish_reason == WITHHELD:
        raise UnusableAnswer("the server's content filter withholds the answer")
    if first.finish_reason == CUT:  # as with models that reason before they answer
        raise UnusableAnswer("the answer is empty: max_new_tokens were spent before it began")
    raise UnusableAnswer("the answer is empty")


def add_samples(reply: Reply, answer: Answer, texts: Sequence[tuple[str, bool]]) -> Reply:
    """Adds an answer's samples and token counts to a reply."""
    return replace(
        reply,
        texts=(*reply.texts, *(text for text, _ in texts)),
        finished=(*reply.finished, *(finished for _, finished in texts)),
        prompt_tokens=reply.prompt_tokens + answer.tokens.prompt_tokens,
        new_tokens=reply.new_tokens + answer.tokens.completion_tokens,
    )


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
        hint = "decoding.min_new_tokens=0 decoding.repetition_penalty=1"
        raise UserError(
            "min_new_tokens and repetition_penalty need a vLLM server, and this server is not vLLM", hint=hint
        )
    settings: dict[str, Any] = {"temperature": 0.0}
    if decoding.strategy == NUCLEUS:
        seed = seed_of(decoding.seed, request.id, first, size=4) >> 1  # some servers accept only 31 bits
        settings = {"temperature": decoding.temperature, "top_p": decoding.top_p, "seed": seed}
    if decoding.num_samples - first > 1:
        settings["n"] = decoding.num_samples - first
    vllm_settings: dict[str, Any] = {}
    if on_vllm:  # settings that are not sent come from the model's generation_config.json
        vllm_settings = {"min_tokens": decoding.min_new_tokens, "repetition_penalty": decoding.repetition_penalty}
        vllm_settings |= {"top_k": -1, "min_p": 0.0}  # off
    if form is not None and form.choices and on_vllm:
        vllm_settings["structured_outputs"] = {"choice": list(form.choices)}
    if form is not None and form.schema is not None:
        schema = {"name": "reply", "schema": dict(form.schema), "strict": True}
        settings["response_format"] = {"type": "json_schema", "json_schema": schema}
    return settings | ({"extra_body": vllm_settings} if vllm_settings else {})


def weigh_choices(answer: Answer, choices: Sequence[str]) -> dict[str, float]:
    """Reads the choices' relative probabilities from the likeliest first tokens.

    A token, stripped of white space, counts for the choice that it equals, that it is the only one to begin ("hall" for
    "hallucinated"), or that it extends by punctuation ("Yes." for "Yes", but not "Yesterday"). It is case-sensitive.
    A choice without any token has 0.

    Returns:
        Empty if the server returns no probabilities, or only those of other tokens.
    """
    logprobs = answer.choices[0].logprobs
    positions = (logprobs.content if logprobs else None) or []
    weights = dict.fromkeys(choices, 0.0)
    for candidate in positions[0].top_logprobs if positions else ():
        choice = _choice_of(candidate.token.strip(), choices)
        if choice is not None:
            weights[choice] += math.exp(candidate.logprob)
    total = sum(weights.values())
    return {choice: weight / total for choice, weight in weights.items()} if total > 0 else {}


def _choice_of(token: str, choices: Sequence[str]) -> str | None:
    if not token or token in choices:
        return token or None
    begun = [choice for choice in choices if choice.startswith(token)]
    if begun:
        return begun[0] if len(begun) == 1 else None
    beyond = [c for c in choices if token.startswith(c) and not token[len(c)].isalnum()]
    return max(beyond, key=len, default=None)


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

    @property
    def is_openai(self) -> bool:
        return self.url == OPENAI

    def explain_for_all(self, error: Any, models: Models, *, has_answered: bool) -> UserError | None:
        """Explains an error that every request would get; None if only this request fails.

        Args:
            error: The client's, with the response's status.
            models: The server's list of models.
            has_answered: An earlier request was answered.
        """
        status, words = error.status_code, self.quote(error_message(error))
        if _is_too_long(error):  # checked before the settings, because some servers blame max_tokens
            return None
        if status == 401 or (status == 403 and not has_answered):  # later it may be about the content of a request
            why = "" if status == 401 else f": {words}"  # with 401 servers quote parts of the key
            hint = f"export {self.key_variable}=..., a key that may use {self.model}"
            if self.key == NO_KEY:
                return UserError(
                    f"the server needs a key, and {self.key_variable} is not set", place=self.url, hint=hint
                )
            return UserError(f"the server refuses the key of {self.key_variable}{why}", place=self.url, hint=hint)
        if status == 404:
            return UserError(
                f"the server has no model {shorten(self.model)}", place=self.url, hint=self._suggest_model(models)
            )
        if status == 429 and error.code == "insufficient_quota":
            hint = f"add credit to the account, or export {self.key_variable}=..., the key of another"
            return UserError("the account of the key has no credit left", place=self.url, hint=hint)
        if "chat template" in error_message(error).lower():
            hint = "start the server with --chat-template FILE, or choose a chat model: engine.model=NAME"
            return UserError("the server's model has no chat template", place=self.url, hint=hint)
        if status in (400, 422) and error.param in _SETTINGS:
            return UserError(f"the server refuses {error.param}: {words}", place=self.url, hint=_SETTINGS[error.param])
        return None

    def explain_one(self, error: Any) -> str:
        """Explains in one line why the server refused a request."""
        words = self.quote(error_message(error))
        if _is_too_long(error):
            return f"the prompt does not fit into the model's context: {words}"
        if error.status_code == 429:
            return f"the server limits the rate, after all retries: {words}"
        return f"the server answered {error.status_code}: {words}"

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
        return shorten(_LIKE_A_KEY.sub("***", text), MAX_QUOTE)

    def _suggest_model(self, models: Models) -> str:
        names = [model.id for model in models.data]
        if not names:
            return "check engine.model, and whether engine.base_url should end with /v1"
        guess = (nearest(self.model, names, 1) or names)[0]
        others = f" (it has {shorten(', '.join(names))})" if len(names) > 1 else ""
        return f"engine.model={guess}{others}"


def error_message(error: Any) -> str:
    """Reads the message of a server's error, which may contain secrets."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str((inner.get("message") if isinstance(inner, dict) else inner) or error)


def _is_too_long(error: Any) -> bool:
    in_message = error.status_code in (400, 413, 422) and _TOO_LONG.search(error_message(error)) is not None
    return in_message or error.code == "context_length_exceeded"


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
        raise UserError(
            f"{key_variable} contains characters that are not allowed in a key", hint=f"export {key_variable}=..."
        )
    _check_url(url)
    return Server(url=url, model=model, key_variable=key_variable, key=key or NO_KEY)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise UserError("engine.base_url is not a URL", hint=BAD_URL_HINT) from None
    if (
        parts.username or parts.password or parts.query or parts.fragment
    ):  # they may be secrets, and the URL is shown in errors
        hint = f"remove everything before @ and after ?; {BAD_URL_HINT}, and the key in a variable"
        raise UserError("engine.base_url contains more than an address", hint=hint)
    if not usable:
        raise UserError(f"engine.base_url is {shorten(url)}", hint=BAD_URL_HINT)
