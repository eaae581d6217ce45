"""An OpenAI-compatible server: its address, its key, and what its refusals mean."""

import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from faithkit.errors import UserError, nearest, shorten
from faithkit.inference.openai_messages import Models

OPENAI = "https://api.openai.com/v1"
NO_KEY = "none"  # for the servers of one's own that want none; the client sends something in any case
LONGEST_QUOTE = 200
BAD_URL_HINT = "engine.base_url=http://localhost:8000/v1"
# What servers call a prompt that does not fit: OpenAI, vLLM and SGLang, llama.cpp, others.
_TOO_LONG = re.compile(
    r"context[ _]length|context[ _]window|context size|maximum (context|input|model) length|max_model_len"
    r"|(prompt|input|request) is too long|too many (input )?tokens|longer than the (model|maximum)",
    re.IGNORECASE,
)
# Settings that every request is sent with, and what may be said instead where a model refuses one.
_SETTINGS = {
    **dict.fromkeys(("temperature", "top_p"), "decoding=nucleus decoding.temperature=1 decoding.top_p=1"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "decoding.max_new_tokens=100, or more, or fewer"),
    **dict.fromkeys(("seed", "n"), "decoding=greedy"),
}
_LIKE_A_KEY = re.compile(r"\b(sk|pk|key)-[\w*.-]{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Holds what is needed to reach a server and to explain its errors.

    Args:
        url: Where it is, without a secret.
        key: Is never shown.
    """

    url: str
    model: str
    key_variable: str
    key: str = field(repr=False)

    @property
    def is_openai(self) -> bool:
        return self.url == OPENAI

    def explain_for_all(self, error: Any, models: Models, *, has_answered: bool) -> UserError | None:
        """Explains what would befall every request alike; None where only this one fails.

        Args:
            error: The client's, with the response's status.
            models: What the server says that it has.
            has_answered: A request has been answered before.
        """
        status, words = error.status_code, self.words(error)
        if _is_too_long(error):  # before the settings: some servers blame max_tokens for it
            return None
        if status == 401 or (status == 403 and not has_answered):  # later it may be about what a request says
            why = "" if status == 401 else f": {words}"  # with 401 servers repeat parts of the key
            hint = f"export {self.key_variable}=..., a key that may use {self.model}"
            if self.key == NO_KEY:
                return UserError(
                    f"the server wants a key, and {self.key_variable} is not set", place=self.url, hint=hint
                )
            return UserError(f"the server refuses the key of {self.key_variable}{why}", place=self.url, hint=hint)
        if status == 404:
            return UserError(f"the server has no model {shorten(self.model)}", place=self.url, hint=self._other(models))
        if status == 429 and error.code == "insufficient_quota":
            hint = f"add credit to the account, or export {self.key_variable}=..., the key of another"
            return UserError("the account of the key has no credit left", place=self.url, hint=hint)
        if "chat template" in said(error).lower():
            hint = "start the server with --chat-template FILE, or choose a chat model: engine.model=NAME"
            return UserError("the server's model has no chat template", place=self.url, hint=hint)
        if status in (400, 422) and error.param in _SETTINGS:
            return UserError(f"the server refuses {error.param}: {words}", place=self.url, hint=_SETTINGS[error.param])
        return None

    def explain_one(self, error: Any) -> str:
        """Says in one line why a request failed that the server answered with an error."""
        words = self.words(error)
        if _is_too_long(error):
            return f"the prompt does not fit into the model's context: {words}"
        if error.status_code == 429:
            return f"the server limits the rate, after all retries: {words}"
        return f"the server answered {error.status_code}: {words}"

    def unreachable(self, error: BaseException, *, has_answered: bool) -> UserError:
        """Explains that nothing answers."""
        cause = error.__cause__ or error
        words = self._quote(str(cause) or type(cause).__name__)
        if has_answered:
            hint = "start it again, then run the same command again"
            return UserError(f"the server has stopped answering: {words}", place=self.url, hint=hint)
        hint = f"start the server there, or name another: {BAD_URL_HINT}"
        return UserError(f"no server answers here: {words}", place=self.url, hint=hint)

    def words(self, error: Any) -> str:
        """Quotes a server, in one line and without secrets."""
        return self._quote(said(error))

    def _quote(self, text: str) -> str:
        if self.key != NO_KEY:
            text = text.replace(self.key, "***")
        return shorten(_LIKE_A_KEY.sub("***", text), LONGEST_QUOTE)

    def _other(self, models: Models) -> str:
        names = [model.id for model in models.data]
        if not names:
            return "check engine.model, and whether engine.base_url should end with /v1"
        guess = (nearest(self.model, names, 1) or names)[0]
        others = f" (it has {shorten(', '.join(names))})" if len(names) > 1 else ""
        return f"engine.model={guess}{others}"


def said(error: Any) -> str:
    """Reads the words of a server's error, which may hold secrets."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str((inner.get("message") if isinstance(inner, dict) else inner) or error)


def _is_too_long(error: Any) -> bool:
    in_words = error.status_code in (400, 413, 422) and _TOO_LONG.search(said(error)) is not None
    return in_words or error.code == "context_length_exceeded"


def is_about(error: Any, *settings: str) -> bool:
    """Tells whether a refusal names one of some settings."""
    words = f"{error.param} {said(error)}".lower()
    return error.status_code in (400, 403, 422) and any(name in words for name in settings)


def read_server(model: str, base_url: str | None, key_variable: str) -> Server:
    """Reads address and key.

    Args:
        base_url: Of a server other than OpenAI's; None takes the variable OPENAI_BASE_URL where it is set, as the
            client does.
        key_variable: The environment variable with the key; a server of one's own needs none.
    """
    if not isinstance(model, str) or not model.strip():
        raise UserError(f"engine.model is {shorten(model)}", hint="engine.model=NAME, as the server calls it")
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).rstrip("/")
    key = os.environ.get(key_variable, "").strip()
    if not key and url == OPENAI:
        hint = f"export {key_variable}=..., or name a server of yours: {BAD_URL_HINT}"
        raise UserError(f"{key_variable} is not set, and OpenAI wants a key", hint=hint)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"{key_variable} holds what no key has: spaces or signs", hint=f"export {key_variable}=...")
    _check_url(url)
    return Server(url=url, model=model, key_variable=key_variable, key=key or NO_KEY)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise UserError("engine.base_url is no address", hint=BAD_URL_HINT) from None
    if parts.username or parts.password or parts.query or parts.fragment:  # it is shown in errors: it may be a secret
        hint = f"leave out what stands before @ and after ?; {BAD_URL_HINT}, the key in a variable"
        raise UserError("engine.base_url holds more than an address", hint=hint)
    if not usable:
        raise UserError(f"engine.base_url is {shorten(url)}", hint=BAD_URL_HINT)


class LateCertificates(ssl.SSLContext):
    """Reads the trusted certificates at the first connection that needs them.

    It takes 50 ms, which a server at an http address, as those of one's own are, would pay in vain at each start.
    """

    _read: Callable[[], ssl.SSLContext]
    _trusted: ssl.SSLContext | None

    def __new__(cls, read: Callable[[], ssl.SSLContext]) -> "LateCertificates":
        made = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        made._read, made._trusted = read, None
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # what asyncio begins a connection with
        if self._trusted is None:
            self._trusted = self._read()
        return self._trusted.wrap_bio(*arguments, **options)
