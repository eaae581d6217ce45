"""Asks a model questions of any kind: prompts with fields of their own, and a reply to each question in their order."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from faithkit.inference import prompts
from faithkit.inference.decoding import Decoding
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import Form, Message, Reply, Request, TextEngine

__all__ = ["TextPrompt", "ask", "name_requests", "read_text_prompt", "weigh_or_write"]


def read_text_prompt(name: str, *fields: str, folder: str | None = None, kept: Sequence[str] = ()) -> TextPrompt:
    """Reads a prompt of ours, or one of a folder of the user's."""
    return prompts.read_text_prompt("judge", name, *fields, folder=folder, kept=kept)


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


class Answered(NamedTuple):
    """The two replies to a question.

    Args:
        weighed: With the probabilities of the choices; None where there are no choices.
        written: None where the probabilities settle the question, or the model has no room for it.
    """

    weighed: Reply | None
    written: Reply | None


def weigh_or_write(
    engine: TextEngine,
    conversations: Sequence[tuple[Message, ...]],
    choices: Sequence[str] | None,
    decoding: Decoding,
    form: Form | None,
    *,
    always_write: bool,
    advance: Callable[[int], Any],
) -> list[Answered]:
    """Asks for the choices' probabilities, and has a reply written where they settle nothing; in the questions' order.

    Args:
        always_write: A reply is wanted beside the probabilities too.
        advance: Is told of each question that is done.
    """
    requests = name_requests(conversations)
    weighed: dict[str, Reply] = {}
    written: dict[str, Reply] = {}
    settled: set[str] = set()
    for reply in engine.weigh(requests, choices) if choices else ():
        weighed[reply.id] = reply
        if not always_write and (reply.probabilities or reply.problem):
            settled.add(reply.id)
            advance(1)
    for reply in engine.generate([one for one in requests if one.id not in settled], decoding, form):
        written[reply.id] = reply
        advance(1)
    return [Answered(weighed.get(one.id), written.get(one.id)) for one in requests]
