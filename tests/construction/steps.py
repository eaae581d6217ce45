"""A chain of three steps with two branches, over an engine that counts what it is asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from construction.ask import Ask, ModelReply, sampling
from construction.chain import Chain
from construction.steps import KEY, Each, Row, RowFailed, Step
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import TextEngine
from faithkit.inference.text_engines import EngineOptions

PROMPT = TextPrompt("Say it again: {text}", ("text",), name="again")


def rows(number: int) -> list[Row]:
    return [{KEY: str(i), "text": f"text {i}"} for i in range(number)]


@dataclass(kw_only=True)
class SmallAsk(Ask):
    """Asks with chunks of a few rows."""

    size: int = 4

    @property
    def chunk_size(self) -> int:
        return self.size


def ask(step: str, engine: TextEngine, prompt: TextPrompt = PROMPT, chunk_size: int = 4) -> Ask:
    """A step that keeps replies, and refuses those with the word bad."""

    def read(row: Row, reply: ModelReply) -> Row:
        if "bad" in reply.text:
            raise RowFailed("refusal", reply.text)
        return {**row, step: reply.text}

    asked = {"options": EngineOptions(name="openai", model="m"), "decoding": sampling(1.0, 8, 0)}
    values, build = lambda row: {"text": row["text"]}, lambda options: engine
    return SmallAsk(size=chunk_size, values=values, read=read, build=build, prompts={"": prompt}, **asked)


def chain(
    folder: Path,
    engines: Sequence[TextEngine],
    *,
    number: int = 10,
    prompts: Sequence[TextPrompt] = (PROMPT, PROMPT),
    chunk_size: int = 4,
    inputs: Sequence[Row] | None = None,
) -> Chain:
    """`inputs`, a branch for each of the first engines, and `last`, which counts characters of both branches."""
    given = rows(number) if inputs is None else list(inputs)
    steps: list[Any] = [Step(name="inputs", read=lambda: iter(given), settings={"rows": given})]
    for place, (engine, prompt) in enumerate(zip(engines, prompts, strict=True)):
        work = ask(f"branch-{place}", engine, prompt, chunk_size)
        steps.append(Step(name=f"branch-{place}", work=work, after=("inputs",), branch=f"b{place}"))
    branches = tuple(step.name for step in steps[1:])
    steps.append(Step(name="last", work=Each(_measured), after=branches))
    return Chain(folder, "test", steps)


def _measured(row: Row) -> Row:
    return {**row, "size": sum(len(str(value)) for name, value in row.items() if name.startswith("branch"))}


def keys(made: Iterator[Row]) -> list[str]:
    return [row[KEY] for row in made]
