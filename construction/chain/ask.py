"""The step that asks a language model: a prompt filled with each row, and its reply read into a new row."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from construction.chain.chain_rows import HOLE, KEY, TRIES, Row, hole, is_hole
from construction.chain.steps import PORTION
from faithkit.inference.decoding import GREEDY, NUCLEUS, Decoding
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.request_cache import CachedEngine
from faithkit.inference.text import Message, Reply, Request, TextEngine
from faithkit.inference.text_engines import AUTO, OPENAI, TRANSFORMERS, EngineOptions, build_text_engine

NO_REPLY = "no reply"
MODEL_KEYS = ("name", "model", "precision", "max_length", "base_url")  # of the block `engine`: what replies depend on
LOCAL_PORTION = 256  # it is batched by length, so its rows may come from the last to the first
LEAST_ROUNDS = 16  # of requests in a portion: its end, where places stay empty, is a small part of it


@dataclass(frozen=True, slots=True)
class Said:
    """The reply of a model to a row.

    Args:
        finished: The model ended it; otherwise it was cut at its most tokens.
        probabilities: Of the choices that were weighed, where some were and the engine tells.
    """

    text: str
    finished: bool = True
    probabilities: Mapping[str, float] = field(default_factory=dict)

    @property
    def likeliest(self) -> str:
        """The choice of the highest probability; empty where none was weighed."""
        return max(self.probabilities, key=lambda choice: self.probabilities[choice], default="")


@dataclass(kw_only=True)
class Ask:
    """Asks a model about each row.

    A request that fails leaves a hole. Its id is the row's key, so its samples depend on seed and key alone: not on
    what is asked beside it, nor on the order in which replies come.

    Args:
        step: The step's name, in holes.
        options: The model; it is loaded when the step begins and let go when it ends.
        prompts: By name, `which` names that of a row.
        values: What a row puts in the place of the prompt's fields.
        read: Makes a row, or a hole, of a row and the reply to it.
        pretend: Makes a row as if the model had replied: for a dry run.
        choices: Beginnings of a reply that are weighed too; none for no weighing.
        build: Makes the engine of the options.
    """

    step: str
    options: EngineOptions
    prompts: Mapping[str, TextPrompt]
    values: Callable[[Row], Mapping[str, str]]
    read: Callable[[Row, Said], Row]
    pretend: Callable[[Row], Row]
    decoding: Decoding
    which: Callable[[Row], str] | None = None
    choices: tuple[str, ...] = ()
    build: Callable[[EngineOptions], TextEngine] = build_text_engine
    _engine: TextEngine | None = field(default=None, repr=False)

    def settings(self, **others: Any) -> dict[str, Any]:
        """Collects what the replies depend on, and further settings of the step."""
        model = {key: value for key, value in asdict(self.options).items() if key in MODEL_KEYS}
        prompts = {prompt.name: prompt.fingerprint for prompt in self.prompts.values()}
        return {
            "model": model,
            "prompts": prompts,
            "decoding": asdict(self.decoding),
            "choices": list(self.choices),
            **others,
        }

    @property
    def portion(self) -> int:
        """Rows at a time."""
        if self.options.name in (AUTO, TRANSFORMERS):
            return LOCAL_PORTION
        return max(PORTION, LEAST_ROUNDS * self.options.concurrency)

    def open(self) -> str:
        """Loads the model."""
        self._engine = self.build(self.options)
        return self._engine.identity

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Fills the prompt."""
        prompt = self.prompts[self.which(row)] if self.which else next(iter(self.prompts.values()))
        return prompt.messages(**self.values(row))

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields rows as the replies come."""
        assert self._engine is not None, "it is opened first"
        by_id = {f"{row[KEY]}#{row[TRIES]}" if TRIES in row else row[KEY]: row for row in rows}
        requests = [Request(id_, self.messages(row)) for id_, row in by_id.items()]
        weighed = {reply.id: reply for reply in self._engine.weigh(requests, self.choices)} if self.choices else {}
        for reply in self._engine.generate(requests, self.decoding):
            yield self._row(dict(by_id[reply.id]), reply, weighed.get(reply.id))

    def _row(self, row: Row, reply: Reply, weighed: Reply | None) -> Row:
        tries = row.pop(TRIES, 0) + 1
        if reply.problem or not reply.texts:
            return hole(row[KEY], self.step, NO_REPLY, reply.problem, tries)
        said = Said(reply.texts[0], reply.finished[0], weighed.probabilities if weighed else {})
        made = self.read(row, said)
        return {**made, HOLE: {**made[HOLE], TRIES: tries}} if is_hole(made) else made

    def close(self) -> str:
        """Lets the model go; says how many replies were known, and what a server counted."""
        engine, self._engine, said = self._engine, None, list[str]()
        if isinstance(engine, CachedEngine):
            said.append(f"{engine.known:,} replies known, {engine.asked:,} asked")
            engine = engine.engine
        if (usage := getattr(engine, "usage", None)) is not None:
            said.append(str(usage))
        engine = None
        if self.options.name != OPENAI:
            gc.collect()  # a model may hold itself in a circle, and the next step may need its memory
        return "; ".join(said)


def sampling(temperature: float, max_new_tokens: int, seed: int) -> Decoding:
    """Gives the settings at a temperature, over all tokens; of 0 the likeliest token at every step."""
    if temperature == 0:
        return Decoding(strategy=GREEDY, max_new_tokens=max_new_tokens)
    return Decoding(strategy=NUCLEUS, top_p=1.0, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)
