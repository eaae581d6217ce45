"""The step that asks a language model: fills a prompt with each row, and reads the reply into a new row."""

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from construction.chain.steps import CHUNK_SIZE, KEY, TRIES, Row, Work, failed_row, read_row
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.reply_cache import CachedEngine
from faithkit.inference.text import AUTO, GREEDY, NUCLEUS, OPENAI, TRANSFORMERS, Decoding, Message, Request, TextEngine
from faithkit.inference.text_engines import EngineOptions, build_text_engine

Build = Callable[[EngineOptions], TextEngine]


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
