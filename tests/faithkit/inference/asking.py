"""Requests, and an engine that sends them to the server of the tests."""

from typing import Any

from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import SYSTEM, USER, Decoding, Message, Reply, Request
from tests.faithkit.inference.server import MODEL, ChatServer

GREEDY = Decoding(max_new_tokens=5)
SECRET = "sk-secret1234567890"


def questions(number: int) -> list[Request]:
    return [Request(f"id {i}", (Message(SYSTEM, "Answer."), Message(USER, f"question {i}"))) for i in range(number)]


def ask(*contents: str) -> list[Request]:
    return [Request(content, (Message(USER, content),)) for content in contents]


def engine_for(server: ChatServer, **options: Any) -> OpenAiEngine:
    given = {"base_url": server.url, "max_retries": 2, "timeout_seconds": 60.0, **options}
    return OpenAiEngine(given.pop("model", MODEL), ServerOptions(**given))


def one_reply(server: ChatServer, **options: Any) -> Reply:
    (reply,) = engine_for(server, **options).generate(questions(1), GREEDY)
    return reply
