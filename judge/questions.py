"""Asks a model questions of any kind: prompts with fields of their own, and a reply to each question in their order."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Form, Message, Reply, Request, TextEngine
from judge.prompt import as_messages, check_fields, fill_fields, read_text


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """The text of a prompt, with fields of its own.

    Args:
        system: Said first, in the system's role; empty for none.
    """

    text: str
    fields: tuple[str, ...]
    system: str = ""

    def __post_init__(self) -> None:
        check_fields(self.text, self.fields)

    def messages(self, **values: str) -> tuple[Message, ...]:
        """Fills the fields; a paragraph whose fields are all empty is left out."""
        return as_messages(fill_fields(self.text, {name: text.strip() for name, text in values.items()}), self.system)


def read_text_prompt(name: str, *fields: str, folder: str | None = None) -> TextPrompt:
    """Reads a prompt of ours, or one of a folder of the user's."""
    return read_text(name, folder, lambda text, system: TextPrompt(text, fields, system))


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
