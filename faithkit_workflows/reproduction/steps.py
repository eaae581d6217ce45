"""A step of a reproduction: one command of a script, in a folder of its own, shared by the tables that need it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from faithkit_workflows.sweep.launching import quote_override

LOCAL, PAPER = "local", "paper"
# Corpora that scale=paper reads from the hub, where no folder of theirs is given.
ON_HUB = ("faithdial", "mnli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command.

    Args:
        name: Of its folder; steps of two tables with one name are one step.
        script: A command of `faithkit`.
        corpora: Keys that take a corpus, each with the corpus's folder below `data_dir`.
        steps: Keys that take the run of another step, each with that step's name.
        stand_in: The model in the place of the paper's, for the verdict: `minilm in place of RoBERTa-large`.
        server: The paid server whose model it asks; run with `hosted=true` alone.
    """

    name: str
    script: Literal["train", "evaluate", "construct"]
    arguments: tuple[str, ...]
    corpora: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    stand_in: str = ""
    server: str = ""


def describing(dataset: str, corpus: str) -> Step:
    """The step that counts what is in a dataset."""
    arguments = ("pipeline=describe", f"pipeline.dataset={dataset}", "pipeline.plots=false")
    return Step(name=f"describe_{dataset}", script="construct", arguments=arguments, corpora={"pipeline.path": corpus})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a reproduction works, and on what.

    Args:
        out: The folder of its steps and tables.
        data_dir: The folder of the corpora in their official layouts, if there is one.
        hosted: Models behind paid servers are asked too.
    """

    scale: str
    out: Path
    data_dir: Path | None = None
    hosted: bool = False
    seed: int = 0

    def folder(self, step: str) -> Path:
        """Names the run's folder of a step."""
        return self.out / "steps" / step

    def corpus(self, name: str) -> Path | None:
        """Finds a corpus below data_dir."""
        path = self.data_dir / name if self.data_dir else None
        return path if path is not None and path.exists() else None

    def given(self, step: Step) -> list[str]:
        """Lists the corpora of a step that are read from data_dir or the hub."""
        on_hub = ON_HUB if self.scale == PAPER else ()
        return [name for name in dict.fromkeys(step.corpora.values()) if self.corpus(name) or name in on_hub]

    def embedded(self, step: Step) -> list[str]:
        """Lists the corpora of a step that the embedded corpus stands in for."""
        given = self.given(step)
        return [name for name in dict.fromkeys(step.corpora.values()) if name not in given]

    def why_not(self, step: Step) -> str:
        """Says why a step cannot be run here; nothing where it can."""
        if step.server and not self.hosted:
            return f"a model behind {step.server}: hosted=true asks it"
        missing = self.embedded(step) if self.scale == PAPER else []
        if missing:
            return f"{', '.join(missing)} is missing below data_dir"
        return ""


def command(step: Step, place: Place) -> list[str]:
    """Writes the arguments of a step's script, as one would type them."""
    arguments = [*step.arguments, f"scale={place.scale}"]
    for key, name in step.corpora.items():
        if path := place.corpus(name):
            arguments.append(f"{key}={quote_override(str(path))}")
    arguments += [f"{key}={quote_override(str(place.folder(name)))}" for key, name in step.steps.items()]
    return [*arguments, f"seed={place.seed}", f"run_dir={quote_override(str(place.folder(step.name)))}"]


def in_order(wanted: Iterable[str], steps: Mapping[str, Step]) -> list[Step]:
    """Puts steps behind those whose runs they take; each stands there once."""
    found: dict[str, Step] = {}

    def add(name: str) -> None:
        if name not in found:
            for needed in steps[name].steps.values():
                add(needed)
            found[name] = steps[name]

    for name in wanted:
        add(name)
    return list(found.values())


def blocked(steps: Iterable[Step], place: Place) -> Iterator[tuple[str, str]]:
    """Gives the steps that cannot be run here, with the reason; those that need one of them are among them."""
    reasons: dict[str, str] = {}
    for step in steps:
        needed = next((reasons[name] for name in step.steps.values() if name in reasons), "")
        if reason := place.why_not(step) or needed:
            reasons[step.name] = reason
            yield step.name, reason
