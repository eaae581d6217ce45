"""Types of values: each defines what is accepted, and the hint for a value that is not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from faithkit.errors import UserError, choice_hint, raise_problems

PRECISIONS = ("auto", "32-true", "bf16")  # of models that write
KEPT_CHECKPOINTS = ("none", "best", KEEP_ALL := "all")  # of a training that has ended
ALL_LINEAR = "all-linear"  # the layers with a LoRA adapter
MAX_RANK, MAX_ALPHA = 512, 16_384  # of LoRA adapters
DETECTOR_PRECISIONS = (*PRECISIONS, "int8", "onnx")
HINTED = "hinted"  # the type of pydantic errors that carry their hint


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row of a table of conflicts: values that exclude each other, or a value that requires another.

    Args:
        when: Takes the block or options; true where there is a conflict.
        problem: What is wrong; `{s.key}` is replaced by a value.
        hint: What to type instead, with the same replacements.
    """

    when: Callable[[Any], Any]
    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class Ineffective:
    """A row of a table of keys that have no effect, so that a user who sets one is notified.

    Args:
        keys: The keys, or blocks.
        reason: Completes "KEY has no effect ..."; `{s.key}` is replaced by a value.
        when: Takes the settings; true where the keys have no effect.
    """

    keys: Iterable[str]
    reason: str
    when: Callable[[Any], Any] = lambda settings: True


def holds(settings: Any, condition: str) -> bool:
    """Evaluates a condition on settings: `key` is set, or `key=value`.

    A key has its full name, in the table of a block too: there its first parts are left out. The value of a block with
    a name, such as `engine`, is its name.
    """
    key, _, expected = condition.partition("=")
    *blocks, last = key.split(".")
    for block in blocks:
        settings = getattr(settings, block, settings)
    value = getattr(settings, last, None)
    value = getattr(value, "name", value)
    if expected:
        return str(value).lower() == expected
    return value is not None and value is not False and value not in ("", [], {})  # 0 is set


def requires(condition: str, needed: str, hint: str | None = None) -> Conflict:
    """Makes a row: a condition requires a key, written as `key=EXAMPLE`."""
    key = needed.partition("=")[0]
    return Conflict(
        lambda s: holds(s, condition) and not holds(s, key), f"{condition} needs {key}", hint or f"set {needed}"
    )


def excludes(first: str, second: str, hint: str = "leave one of them out") -> Conflict:
    """Makes a row: two conditions exclude each other."""
    return Conflict(lambda s: holds(s, first) and holds(s, second), f"{first} and {second} exclude each other", hint)


def where(condition: Callable[[Any], Any], *rows: Conflict) -> Iterator[Conflict]:
    """Limits rows to settings for which a condition holds."""
    for row in rows:
        yield Conflict(lambda s, row=row: condition(s) and row.when(s), row.problem, row.hint)  # type: ignore[misc]


def no_effect(*keys: str, where: str = "", without: str = "") -> Ineffective:
    """Makes a row: keys have no effect where a condition holds, or without one."""
    if where:
        return Ineffective(keys, f"with {where}", lambda s: holds(s, where))
    return Ineffective(keys, f"without {without}", lambda s: not holds(s, without))


def find_conflicts(settings: Any, table: Iterable[Conflict]) -> Iterator[UserError]:
    """Yields a problem for each row of the table that applies."""
    for row in table:
        if row.when(settings):
            yield UserError(row.problem.format(s=settings), hint=row.hint.format(s=settings))


class Block(BaseModel):
    """A block of the configuration: its keys with their types. Other keys are refused, and so is text for a number.

    Attributes:
        conflicts: The table that the values are checked against once each is valid by itself.
    """

    # Built at first use: a script needs a few of all models.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    conflicts: ClassVar[tuple[Conflict, ...]] = ()

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        raise_problems(find_conflicts(self, self.conflicts))
        return self

    def preflight(self, script: Any) -> Iterator[UserError]:
        """Yields what is missing outside of the command line, besides what the marks of keys find.

        Args:
            script: The settings of the script, which this block is part of.
        """
        yield from ()


class OpenBlock(Block):
    """A block that may have further keys, which are not checked here."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Preflight:
    """Marks a key whose value names something outside of the command line: a file, a model, a folder to write.

    Args:
        check: Takes the key and the value, and yields what is missing; called once all values are valid.
    """

    check: Callable[[str, Any], Iterator[UserError]]


@dataclass(frozen=True, slots=True)
class Hint:
    """Replaces pydantic's message by one hint, whatever is wrong with the value."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
            try:
                return check(value)
            except ValidationError:
                # As an argument: pydantic would read braces in the message as places to fill in.
                raise PydanticCustomError(HINTED, "wrong", {"hint": self.text}) from None

        return core_schema.no_info_wrap_validator_function(validate, handler(source))


@dataclass(frozen=True, slots=True)
class OneOf:
    """Accepts one of the choices; the hint suggests the nearest one."""

    choices: tuple[Any, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            if any(type(value) is type(name) and value == name for name in self.choices):
                return value
            raise PydanticCustomError(HINTED, "wrong", {"hint": choice_hint(value, self.choices)})

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Accepts one of the choices, or a list of several."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            names = value if isinstance(value, list) else [value]
            if names and all(isinstance(name, str) and name in self.choices for name in names):
                return value
            wrong = next((name for name in names if name not in self.choices), value)
            raise PydanticCustomError(HINTED, "wrong", {"hint": choice_hint(wrong, self.choices)})

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True, slots=True)
class _Path:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: str) -> str:
            if "\0" in value or len(value.encode()) > 4096 or not value.strip():
                raise ValueError("no path")
            return value

        return core_schema.no_info_after_validator_function(validate, handler(source))


Whole = Annotated[int, Hint("use a whole number")]
Count = Annotated[int, Field(ge=1, le=10**9), Hint("use a whole number of 1 or more")]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**12), Hint("use a whole number of 0 or more")]
Seed = Annotated[int, Field(ge=0, lt=2**32), Hint("use a whole number from 0 to 4294967295")]
Tokens = Annotated[int, Field(ge=1, le=10**7), Hint("use a whole number of 1 or more, at most 10000000")]
Positive = Annotated[float, Field(gt=0), Hint("use a number above 0")]
Seconds = Annotated[float, Field(gt=0, le=10**7), Hint("use a number of seconds above 0, at most 10000000")]
NonNegative = Annotated[float, Field(ge=0), Hint("use a number of 0 or more; 0 is off")]
Share = Annotated[float, Field(ge=0, le=1), Hint("use a share, from 0 to 1")]
PositiveShare = Annotated[float, Field(gt=0, le=1), Hint("use a share above 0, at most 1")]
PartialShare = Annotated[float, Field(ge=0, lt=1), Hint("use a share from 0 to below 1")]
OpenShare = Annotated[float, Field(gt=0, lt=1), Hint("use a share above 0 and below 1")]
Text = Annotated[str, Field(min_length=1), Hint("use a text; a number as a text is quoted twice: \"'5'\"")]
PathText = Annotated[str, _Path(), Hint("use a path; a name that is a number is written ./5")]
Switch = Annotated[bool, Hint("use true or false")]
