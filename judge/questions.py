"""Asks a model questions of any kind: prompts with fields of their own, and a reply to each question in their order."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from faithkit.inference import prompts
from faithkit.inference.decoding import Decoding
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import Form, Message, Reply, Request, TextEngine

__all__ = ["TextPrompt", "ask", "name_requests", "read_text_prompt"]


def read_text_prompt(name: str, *fields: str, folder: str | None = None) -> TextPrompt:
    """Reads a prompt of ours, or one of a folder of the user's."""
    return prompts.read_text_prompt("judge", name, *fields, folder=folder)


def name_requests(conversations: Sequence[tuple[Message, ...]]) -> list[Request]:
    """Makes the requests, each named by what it asks: samples depend on that name, and on nothing else."""
    seen: Counter[str] = Counter()
    requests = []
    for messages in conversations:
        text = "\0".join(message.content for message in messages)
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]
        requests.append(Request(f"{digest}:{seen[digest]}", messages))
        seen[digest] += 1
    return requests


def ask(
    engine: TextEngine, conversations: Sequence[tuple[Message, ...]], decoding: Decoding, form: Form | None = None
) -> list[Reply]:
    """Gives the reply to each conversation, in their order."""
    requests = name_requests(conversations)
    replies = {reply.id: reply for reply in engine.generate(requests, decoding, form)} if requests else {}
    return [replies[request.id] for request in requests]
