"""The step that asks a language model: fills a prompt with each row, and reads the reply into a new row.

A reply that cannot be used has a fault. The rules in their order; the first that matches names the fault:

1. `empty`: it has no letter and no digit.
2. `refusal`: its first sentence declines ("I cannot answer ...", "I'm sorry, but I am unable to ...", "As an AI ...").
3. `repeats the prompt`: it has `ECHO_WORDS` words in a row from the instruction, or equals the last turn. Words of
   the knowledge do not count: a grounded reply may quote it.
4. `other language`: its language is clearly not English (`faithkit.languages`).
5. `over the limit`: it has too many words.
6. `cut off`: the model did not finish it within its tokens.

>>> rules = ReplyRules(max_words=8)
>>> [rules.fault(text) for text in ("...", "I'm sorry, I cannot answer that.", "Es ist ein Fluss und er ist lang.")]
['empty', 'refusal', 'other language']
>>> rules.fault("The Danube flows through ten countries.") is None
True
"""

import gc
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from construction.steps import CHUNK_SIZE, KEY, TRIES, Row, Work, failed_row, read_row
from data_modules.reading.fields import SPEAKER_MARKS
from faithkit.inference.prompts import FIELD, TextPrompt
from faithkit.inference.text import AUTO, GREEDY, NUCLEUS, OPENAI, TRANSFORMERS, Decoding, Message, Request, TextEngine
from faithkit.inference.text_engines import CachedEngine, EngineOptions, build_text_engine
from faithkit.languages import ENGLISH, identify_language
from faithkit.words import unicode_words

Build = Callable[[EngineOptions], TextEngine]
EMPTY, REFUSAL, ECHO = "empty", "refusal", "repeats the prompt"
LANGUAGE, TOO_LONG, CUT = "other language", "over the limit", "cut off"
ECHO_WORDS = 8  # too many for a coincidence
_DECLINES = (
    r"(?:answer|provide|help|assist|comply|fulfil\w*|respond|generate|continue|discuss|create|write|give|determine|"
    r"complete|offer|do that|do this)"
)
_REFUSAL = re.compile(
    r"\bas an? (?:ai|artificial intelligence|language model|large language model)\b"
    rf"|\b(?:i|we) (?:can ?not|can't|could not|couldn't|will not|won't|must decline to) {_DECLINES}\b"
    rf"|\b(?:i|we)(?: am|'m| are|'re) (?:not able|unable|not allowed) to {_DECLINES}\b"
    r"|^\W*(?:unable to answer|no answer (?:is )?(?:possible|available)|not enough information)\b"
    r"|\b(?:do(?:es)? not|don't|doesn't) (?:contain|have|include|provide) (?:the |any |enough |sufficient )?"
    r"(?:necessary |relevant )?information\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"^.{0,300}?(?:[.!?\n]|$)", re.DOTALL)
# Begins a turn: a speaker's mark with a colon anywhere, or without one at the beginning of a line.
_MARK = re.compile(
    "|".join(rf"{re.escape(mark)}\s*:|^[ \t]*{re.escape(mark)}" for mark in SPEAKER_MARKS.values()),
    re.IGNORECASE | re.MULTILINE,
)
MAX_MORE_WORDS = 6  # than the reference has (HalluDial, Tables 13 and 14)
TOO_MANY_WORDS, NO_EXPLANATION, SAME = "over six words more", "no explanation", "the reference itself"
_REPLY = re.compile(r"^[\s#*]*hallucinated (?:reply|response)[#*]*\s*:[\s*]*", re.IGNORECASE)
_EXPLANATION = re.compile(r"(?:^|\n)[\s#*]*(?:hallucination )?explanation[#*]*\s*:[\s*]*", re.IGNORECASE)
_NEXT = re.compile(r"\n[\s#*]*(?:example \d|knowledge\s*:|conversation\s*:|reference reply\s*:)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply of a model to a row.

    Args:
        finished: The model ended it; otherwise it was cut at the maximal number of tokens.
        probabilities: Of the choices, where choices were given and the engine returns them.
    """

    text: str
    finished: bool = True
    probabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Ask(Work):
    """Asks a model about each row.

    A request that fails makes a failed row. Its id is the row's key, so its samples depend on seed and key alone: not
    on the other requests, nor on the order of the replies.

    Args:
        options: The model; it is loaded when the step begins and freed when it ends.
        prompts: By the value of the field `which` of a row; without this field there is one.
        values: Gives the values of the prompt's fields.
        read: Makes a row from a row and its reply.
        pretended: Fields of a row as if the model had replied, for a dry run.
        choices: Beginnings of a reply whose probabilities are computed too.
        build: Makes the engine.
    """

    options: EngineOptions
    prompts: Mapping[str, TextPrompt]
    values: Callable[[Row], Mapping[str, str]]
    read: Callable[[Row, ModelReply], Row]
    decoding: Decoding
    pretended: Mapping[str, Any] = field(default_factory=dict)
    which: str = ""
    choices: tuple[str, ...] = ()
    build: Build = build_text_engine
    _engine: TextEngine | None = field(default=None, repr=False)

    def settings(self) -> dict[str, Any]:
        """Collects what the replies depend on."""
        keys = ("name", "model", "precision", "max_length", "base_url")  # of the block `engine`
        return {
            "model": {key: getattr(self.options, key) for key in keys},
            "prompts": {prompt.name: prompt.fingerprint for prompt in self.prompts.values()},
            "decoding": asdict(self.decoding),
            "choices": list(self.choices),
        }

    @property
    def chunk_size(self) -> int:
        """The number of rows in a chunk."""
        if self.options.name in (AUTO, TRANSFORMERS):
            return 256  # local engines batch by length, so all rows of a chunk may come at its end
        # Many rounds of concurrent requests, so that few connections idle at the end.
        return max(CHUNK_SIZE, 16 * self.options.concurrency)

    def open(self) -> str:
        """Loads the model."""
        self._engine = self.build(self.options)
        return self._engine.identity

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Fills the prompt."""
        return self.prompts[row[self.which] if self.which else ""].messages(**self.values(row))

    def pretend(self, row: Row) -> Row:
        """Makes a row as if the model had replied."""
        return {**row, **self.pretended}

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields rows in the order of the replies."""
        assert self._engine is not None, "it is opened first"
        by_id = {f"{row[KEY]}#{row[TRIES]}" if TRIES in row else row[KEY]: row for row in rows}
        requests = [Request(id_, self.messages(row)) for id_, row in by_id.items()]
        weighed = {reply.id: reply for reply in self._engine.weigh(requests, self.choices)} if self.choices else {}
        for reply in self._engine.generate(requests, self.decoding):
            row = by_id[reply.id]
            if reply.problem or not reply.texts:
                yield failed_row(row[KEY], "no reply", reply.problem)
                continue
            probabilities = weighed[reply.id].probabilities if reply.id in weighed else {}
            yield read_row(row, self.read, ModelReply(reply.texts[0], reply.finished[0], probabilities))

    def close(self) -> str:
        """Frees the model; returns how many replies came from the cache, and what a server counted."""
        engine, self._engine, usage = self._engine, None, list[str]()
        if isinstance(engine, CachedEngine):
            usage.append(f"{engine.known:,} replies known, {engine.asked:,} asked")
            engine = engine.engine
        if (counted := getattr(engine, "usage", None)) is not None:
            usage.append(str(counted))
        engine = None
        if self.options.name != OPENAI:
            gc.collect()  # models may have reference cycles, and the next step may need the memory
        return "; ".join(usage)


def sampling(temperature: float, max_new_tokens: int, seed: int) -> Decoding:
    """Gives the decoding at a temperature, over all tokens; greedy decoding for 0."""
    if temperature == 0:
        return Decoding(strategy=GREEDY, max_new_tokens=max_new_tokens)
    return Decoding(strategy=NUCLEUS, top_p=1.0, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)


class EnginePool:
    """Builds engines and reuses them in later steps; the least recently used one is freed first.

    The engine of a server is built each time: that costs nothing, and it counts the usage of each step.

    Args:
        places: The number of local models held at a time: two for the two sides of a dialogue.
    """

    def __init__(self, build: Build = build_text_engine, places: int = 2):
        self.build, self.places = build, places
        self._engines: OrderedDict[EngineOptions, TextEngine] = OrderedDict()

    def __call__(self, options: EngineOptions) -> TextEngine:
        """Gives the engine of the options."""
        if options.name == OPENAI:
            return self.build(options)
        engine = self._engines.pop(options, None)
        while engine is None and len(self._engines) >= self.places:
            self._engines.popitem(last=False)
            gc.collect()  # its memory is needed now
        self._engines[options] = engine = engine or self.build(options)
        if not isinstance(engine, CachedEngine):
            return engine
        return CachedEngine(engine.engine, engine.path, commit_every=engine.commit_every)  # counts from 0


def cut_turns(text: str) -> tuple[str, bool]:
    """Cuts a reply before the first further turn that the model wrote.

    Returns:
        The reply without a speaker's mark at its beginning, and whether it was cut.
    """
    reply = text.strip()
    if (found := _MARK.match(reply)) is not None:
        reply = reply[found.end() :].strip()
    found = _MARK.search(reply)
    return (reply[: found.start()].strip(), True) if found else (reply, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """Rules for replies.

    Args:
        max_words: The most words of a reply; None for any number.
        language: ENGLISH, or None for any.
        instruction: The prompt's text, with its fields.
    """

    max_words: int | None = None
    language: str | None = ENGLISH
    instruction: str = ""
    _runs: frozenset[tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        runs = {run for part in FIELD.split(self.instruction)[::2] for run in _runs_of(unicode_words(part))}
        object.__setattr__(self, "_runs", frozenset(runs))

    def fault(self, text: str, *, finished: bool = True, last_turn: str = "", may_decline: bool = False) -> str | None:
        """Names the fault of a reply; None without one."""
        words = unicode_words(text)
        if not any(character.isalnum() for character in text):
            return EMPTY
        if is_refusal(text) and not may_decline:
            return REFUSAL
        if not self._runs.isdisjoint(_runs_of(words)) or (len(words) >= 4 and words == unicode_words(last_turn)):
            return ECHO
        if self.language == ENGLISH and identify_language(text):
            return LANGUAGE
        if self.max_words is not None and len(text.split()) > self.max_words:
            return TOO_LONG
        return None if finished else CUT


def is_refusal(text: str) -> bool:
    """Checks whether the first sentence declines to answer."""
    first = _FIRST.match(text.strip().replace("’", "'"))
    return bool(first and _REFUSAL.search(first[0]))


def _runs_of(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[place : place + ECHO_WORDS]) for place in range(len(words) - ECHO_WORDS + 1)}


def read_induced(text: str, reference: str) -> tuple[str, str, str | None]:
    """Reads an induced hallucination, its explanation, and its fault; None without one.

    >>> read_induced("It was built in 1922.\\n\\nExplanation:\\nThe hallucinated part is \\"1922\\".", "Built in 1911.")
    ('It was built in 1922.', 'The hallucinated part is "1922".', None)
    """
    whole = text
    text = _REPLY.sub("", text)
    reply, *rest = _EXPLANATION.split(text, maxsplit=1)
    reply, explanation = reply.strip(), _NEXT.split("".join(rest))[0].strip()  # the model may go on with an example
    if not reply or not explanation:
        return whole, "", NO_EXPLANATION
    if unicode_words(reply) == unicode_words(reference):
        return reply, explanation, SAME
    is_long = len(reply.split()) > len(reference.split()) + MAX_MORE_WORDS
    return reply, explanation, TOO_MANY_WORDS if is_long else None
