"""Prompts a model with questions, and returns the replies in order; also questions with two answers.

If the engine computes probabilities, a question with two answers needs one pass over the prompt and no generation. With
`written`, or without probabilities, the model generates an answer, which is parsed strictly: any other answer than the
two choices is none.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from tqdm.auto import tqdm

from faithkit.inference.prompts import (
    EXAMPLES,
    TextPrompt,
    fill_fields,
    join_examples,
    read_text_prompt,
    split_instruction,
)
from faithkit.inference.text import Decoding, Form, Message, Reply, Request, TextEngine
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from judge.prompt import OPTIONAL_FIELDS, example_values
from judge.reply import MARKS, read_first_word, without_thoughts

Asked = TypeVar("Asked")
CHUNK_SIZE = 256  # examples that are judged together


def name_requests(conversations: Sequence[tuple[Message, ...]]) -> list[Request]:
    """Makes the requests, with ids derived from their text: samples depend on the id alone."""
    num_seen: Counter[str] = Counter()
    requests = []
    for messages in conversations:
        text = "\0".join(message.content for message in messages)
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]
        requests.append(Request(f"{digest}:{num_seen[digest]}", messages))
        num_seen[digest] += 1
    return requests


def ask(
    engine: TextEngine, conversations: Sequence[tuple[Message, ...]], decoding: Decoding, form: Form | None = None
) -> list[Reply]:
    """Generates the reply to each conversation, in their order."""
    requests = name_requests(conversations)
    replies = {reply.id: reply for reply in engine.generate(requests, decoding, form)} if requests else {}
    return [replies[request.id] for request in requests]


class Answered(NamedTuple):
    """The result of a question.

    Args:
        weighed: The probabilities of the choices; None without choices.
        written: The generated reply; None if the probabilities suffice, or the prompt is too long.
    """

    weighed: Reply | None
    written: Reply | None


def weigh_or_write(
    engine: TextEngine,
    rows: Sequence[Asked],
    messages: Callable[[Asked], tuple[Message, ...]],
    choices: Sequence[str] | None,
    decoding: Decoding,
    form: Form | None,
    *,
    always_write: bool,
    title: str | None,
) -> Iterator[tuple[Asked, Answered]]:
    """Computes the probabilities of the choices, and generates replies where there are none; in the rows' order.

    Args:
        messages: Makes the question about a row.
        always_write: Also generates a reply if there are probabilities.
        title: Of the progress bar; None for none.
    """
    with tqdm(total=len(rows), desc=title, disable=title is None, unit="response") as bar:
        for begin in range(0, len(rows), CHUNK_SIZE):
            chunk = rows[begin : begin + CHUNK_SIZE]
            requests = name_requests([messages(row) for row in chunk])
            weighed: dict[str, Reply] = {}
            written: dict[str, Reply] = {}
            settled: set[str] = set()
            for reply in engine.weigh(requests, choices) if choices else ():
                weighed[reply.id] = reply
                if not always_write and (reply.probabilities or reply.problem):
                    settled.add(reply.id)
                    bar.update()
            for reply in engine.generate([one for one in requests if one.id not in settled], decoding, form):
                written[reply.id] = reply
                bar.update()
            for row, request in zip(chunk, requests, strict=True):
                yield row, Answered(weighed.get(request.id), written.get(request.id))


def messages_about(prompt: TextPrompt, example: Example, **others: str) -> tuple[Message, ...]:
    """Fills a prompt with the knowledge, history and response of an example, and with other values."""
    return prompt.messages(**{**example_values(example), "response": example.response, **others})


FIRST, SECOND = "1", "2"
MAX_ANSWER_TOKENS = 4
_NUMBER = re.compile(
    rf"^[{MARKS}]*(?:(?:the\s+)?(?:reply|response|answer)[{MARKS}:]*(?:is[{MARKS}:]*)?)?"
    r"([12])(?!\w|[.,]\d|\s*(?:and|or|&)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with two answers.

    Args:
        prompt: The name of its prompt, whose fields are those of an example and `fields`.
        parse: Returns the choice in a reply; None if there is neither.
    """

    prompt: str
    fields: tuple[str, ...]
    choices: tuple[str, str]
    parse: Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a model.

    Args:
        choice: None if the reply contains neither.
        probability: Of the first choice, if the engine computes it.
        text: The reply, or the reason why there is none; empty without generation.
    """

    choice: str | None
    probability: float | None = None
    text: str = ""


def parse_number(text: str) -> str | None:
    """Parses 1 or 2 at the beginning of a reply.

    >>> parse_number("Reply 2."), parse_number("**1**"), parse_number("12"), parse_number("1 and 2")
    ('2', '1', None, None)
    """
    found = _NUMBER.match(without_thoughts(text))
    return found[1] if found else None


ACCURACIES = RIGHT, WRONG = ("Accurate", "Inaccurate")


def parse_accuracy(text: str) -> str | None:
    """Parses Accurate or Inaccurate at the beginning of a reply."""
    return {HALLUCINATED: RIGHT, FAITHFUL: WRONG}.get(read_first_word(text, ACCURACIES))


COMPARATIVE = Question(prompt="comparative", fields=("first", "second"), choices=(FIRST, SECOND), parse=parse_number)
META = Question(prompt="meta", fields=("response", "judgement"), choices=ACCURACIES, parse=parse_accuracy)


class Asker:
    """Asks a question with two answers about many examples.

    Args:
        prompts: A folder with other prompts.
        shots: Examples in the prompt: the question's first field as response, others in `meta`, the answer as target.
        written: Generates and parses answers, even if the engine computes probabilities.
        max_new_tokens: Maximum length of an answer; None takes the default.
    """

    def __init__(
        self,
        engine: TextEngine,
        question: Question,
        *,
        prompts: str | None = None,
        shots: Sequence[Example] = (),
        written: bool = False,
        max_new_tokens: int | None = None,
    ):
        self.engine, self.question, self.written = engine, question, written
        self.max_new_tokens = max_new_tokens or MAX_ANSWER_TOKENS
        optional, kept = (*OPTIONAL_FIELDS, EXAMPLES), question.fields
        prompt = read_text_prompt("judge", question.prompt, *kept, folder=prompts, kept=kept, optional=optional)
        instruction, asked = split_instruction(prompt.text, (*OPTIONAL_FIELDS, *kept))
        self.prompt = replace(prompt, text="\n\n".join([*instruction, *asked]))

        filled = []
        for shot in shots:
            texts = (shot.response, *(str(shot.meta[name]) for name in kept[1:]))
            values = {**example_values(shot), **dict(zip(kept, texts, strict=True))}
            filled.append((fill_fields("\n\n".join(asked), values, *kept), shot.target or ""))
        self.examples = join_examples(filled)

    def answers(self, rows: Sequence[tuple[Example, Mapping[str, str]]], *, progress: bool = False) -> Iterator[Answer]:
        """Yields the answers in the rows' order; a row is an example with the values of the other fields."""
        found = weigh_or_write(
            self.engine,
            rows,
            lambda row: messages_about(self.prompt, row[0], **row[1], examples=self.examples),
            self.question.choices,
            Decoding(max_new_tokens=self.max_new_tokens),
            None if self.written else Form(choices=self.question.choices),
            always_write=self.written,
            title=self.question.prompt if progress else None,
        )
        first, second = self.question.choices
        for _, (weighed, written) in found:
            probability = weighed.probabilities.get(first) if weighed else None
            if written is not None:
                text = written.texts[0] if written.texts else written.problem
                choice = self.question.parse(text) if written.texts else None
                yield Answer(choice=choice, probability=probability, text=text)
                continue
            assert weighed is not None, "every question gets a reply"
            choice = None if probability is None else first if probability >= 0.5 else second
            yield Answer(choice=choice, probability=probability, text=weighed.problem if probability is None else "")
