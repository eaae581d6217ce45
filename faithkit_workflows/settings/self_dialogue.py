"""The block `pipeline` of `pipeline=self_dialogue`."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from data_modules.datasets.diahalu import DOMAINS
from data_modules.reading.fields import ANY
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.inference.text_engines import OPENAI
from faithkit.settings.types import Count, Hint, NonNegative, OneOf, PathText, Switch, Text
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.data import OnBadRow
from faithkit_workflows.settings.pipeline import Pipeline

SomeDomains = Annotated[list[Annotated[str, OneOf(DOMAINS)]], Hint(f"use a list of some of {', '.join(DOMAINS)}")]
Paths = PathText | Annotated[list[PathText], Field(min_length=1)]


class SelfDialogue(Pipeline):
    """`pipeline=self_dialogue`."""

    topics: Annotated[Paths, Hint(f"use {EMBEDDED}, a file, a folder, or a list of them")]
    domains: Annotated[
        Annotated[str, OneOf((ANY,))] | Annotated[SomeDomains, Field(min_length=1)],
        Hint(f"use {ANY}, or a list of some of {', '.join(DOMAINS)}"),
    ]
    on_bad_row: OnBadRow
    opening: Annotated[str, OneOf(("model", "topic"))]
    rounds: Annotated[int, Field(ge=1, le=100), Hint("use a whole number from 1 to 100")]
    min_rounds: Count
    temperature: NonNegative
    max_words: Count
    max_new_tokens: Count
    language: Annotated[Any, OneOf(("en", None))]
    edit_domains: SomeDomains
    judge: Text | None = None
    judge_types: Switch = False
    weigh_verdicts: Switch = False
    max_judgement_tokens: Count = 100
    detector: PathText | None = None

    @property
    def paths(self) -> list[str]:
        """The topic files and folders."""
        return [self.topics] if isinstance(self.topics, str) else self.topics

    def problems(self, settings: Any) -> Iterator[UserError]:
        from construction.dialogues.topics import topic_files

        if self.min_rounds > self.rounds:
            problem = f"pipeline.min_rounds is {self.min_rounds}, and a dialogue has {self.rounds} rounds"
            yield UserError(problem, hint=f"pipeline.min_rounds={self.rounds}")
        yield from self._verdict_problems(settings)
        if EMBEDDED in self.paths:
            if len(self.paths) > 1:
                yield UserError(f"pipeline.topics names {EMBEDDED} and files", hint="use one or the other")
            return
        try:
            topic_files(self.paths)
        except UserError as error:
            yield error

    def _verdict_problems(self, settings: Any) -> Iterator[UserError]:
        yield from around.checkpoint_problems("pipeline.detector", self.detector, "critic", "tagger", "judge")
        if self.judge is not None and self.detector is not None:
            yield UserError("pipeline.judge and pipeline.detector are both named", hint="leave one of them out")
        for name in ("judge_types", "weigh_verdicts"):
            if getattr(self, name) and self.judge is None:
                yield UserError(f"pipeline.{name}=true names no judge", hint="pipeline.judge=NAME: a language model")
        if self.judge is not None and settings.engine.name != OPENAI:
            yield from around.weights_problems("pipeline.judge", self.judge)
