"""Keys that several scripts share."""

from typing import Annotated

from pydantic import AfterValidator, Field

from faithkit.settings.check import ScriptSettings
from faithkit.settings.types import Count, Hint, PathText, Seed, Switch, Text, Tokens


def _each_once(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError("twice")
    return values


Length = Annotated[Tokens | None, Hint("use 1 or more tokens, or null for what the model was trained with")]
BatchTokens = Annotated[Count | None, Hint("use 1 or more tokens, or null for what suits the device")]
MaxWindows = Annotated[Count | None, Hint("use 1 or more windows, or null for all")]
Seeds = Annotated[
    Annotated[list[Seed], Field(min_length=2), AfterValidator(_each_once)] | None,
    Hint("use a list of two different numbers or more, seeds=[1,2,3], or null for seed alone"),
]
Names = Annotated[list[Text] | None, Hint("use a list of names, [high-overlap,entailed], or null")]
BestOf = Annotated[int, Field(ge=1, le=10_000), Hint("use 1 or more answers")]
Folder = Annotated[PathText | None, Hint("use a folder's path; a name that is a number is written ./5")]


class Common(ScriptSettings):
    """The key that every script has."""

    debug: Switch = False


class Run(Common):
    """Keys of scripts that work in a run's folder."""

    seed: Seed
    run_dir: Folder = None
    resume: Folder = None


class Extensible(Run):
    """Keys of scripts that build datasets or tasks."""

    extensions: Annotated[
        list[Text], Hint("use a list of class names or dataset names: extensions=[my_package.MyData]")
    ] = Field(default_factory=list)
