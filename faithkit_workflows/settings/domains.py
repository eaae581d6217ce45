"""The block `benchmark` of `benchmark=domains`: the domains, and what their baselines need."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from faithkit.errors import UserError, choice_hint
from faithkit.settings.types import Block, Hint, NonNegativeInt, OneOf, OpenBlock, PathText, Switch, Text
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.data import NumRows, OnBadRow
from faithkit_workflows.settings.datasets import dataset_problems
from faithkit_workflows.settings.no_effect import without_effect

HISTORIES = ("apart", "joined")  # as in faithkit_workflows.domains.definition, without numpy
PARTS = ("dev", "held", "all")  # as in faithkit_workflows.domains.rows


class DomainSource(OpenBlock):
    """A dataset of a domain; its own options stand beside these, and the dataset checks them."""

    dataset: Text | None = None
    target: Text | None = Field(None, alias="_target_")
    path: PathText
    splits: list[Text] | None = None
    where: dict[str, Any] | None = None
    fit_only: Switch = False


class Domain(Block):
    """A domain of `benchmark.domains`; `faithkit_workflows.domains.definition.Domain` says what each key means."""

    title: Text
    sources: Annotated[list[DomainSource], Field(min_length=1)]
    texts: list[Text]
    corpora: list[Text]
    authors: list[Text]
    history: Annotated[str, OneOf(HISTORIES)] = "apart"
    max_length_gap: Annotated[NonNegativeInt | None, Hint("use a number of words, or null for all pairs")] = None
    beside: Switch = False
    max_rows: NumRows = None
    looks: NonNegativeInt = 0
    nli: PathText | None = None


class Domains(Block):
    """`benchmark=domains`."""

    name: Text
    path: PathText
    part: Annotated[str, OneOf(PARTS)]
    only: Annotated[
        Annotated[list[Text], Field(min_length=1)] | None, Hint("use a list of domains, [wow,xsum], or null for all")
    ]
    encoder: PathText | None
    nli: PathText | None
    max_fit_rows: NumRows
    on_bad_row: OnBadRow
    domains: Annotated[dict[Text, Domain], Field(min_length=1)]

    @model_validator(mode="after")
    def _only_names_domains(self) -> Self:
        for name in self.only or ():
            if name not in self.domains:
                hint = choice_hint(name, tuple(self.domains))
                raise UserError(f"benchmark.only names no domain: {name!r}", hint=hint)
        return self


def domain_problems(settings: Any) -> Iterator[UserError]:
    """Finds files and weights that are not there, and detectors that need rows of one dataset to be set up."""
    block = settings.benchmark
    yield from around.weights_problems("benchmark.encoder", block.encoder)
    yield from around.weights_problems("benchmark.nli", block.nli)
    if settings.selfcheck.measure or settings.examiner.turns or isinstance(settings.judge.examples, int):
        problem = "SelfCheckGPT, LMvLM and examples drawn from training rows are of one dataset, and not of domains"
        yield UserError(problem, hint="evaluate each dataset by itself, or give judge.examples=FILE")
    from data_modules.reading.files import EMBEDDED

    root = Path(block.path).expanduser()
    if block.path != EMBEDDED and not root.is_dir():
        hint = around.near_hint("benchmark.path", root, "the folder that holds the corpora")
        yield UserError("no such folder", place=block.path, hint=hint)
        return
    names = list(block.only or block.domains)
    for name in names:
        others = ",".join(other for other in names if other != name)
        for source in block.domains[name].sources:
            path = EMBEDDED if block.path == EMBEDDED else str(root / source.path)
            own = {**(source.model_extra or {}), "dataset": source.dataset, "path": path, "split": None}
            for found in dataset_problems(f"benchmark.domains.{name}", own):
                if found.problem == "no such file or folder":  # a corpus that is not at hand can be left out
                    yield UserError(found.problem, place=path, hint=f"benchmark.only=[{others}] leaves {name} out")
                else:
                    yield found


def domain_notes(given: Set[str]) -> Iterator[str]:
    """Finds keys that are given and do nothing over domains."""
    yield from without_effect(given, ["html", "retrieval"], "with benchmark=domains")
