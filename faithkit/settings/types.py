"""Types of values: each defines what is accepted, and the hint for a value that is not."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from faithkit.errors import UserError, choice_hint, raise_problems

PRECISIONS = ("auto", "32-true", "bf16")  # of models that write
KEPT_CHECKPOINTS = ("none", "best", KEEP_ALL := "all")  # of a training that has ended
ALL_LINEAR = "all-linear"  # the layers with a LoRA adapter
MAX_ALPHA = 16_384  # of LoRA adapters
DETECTOR_PRECISIONS = (*PRECISIONS, "int8", "onnx")
HINTED = "hinted"  # the type of pydantic errors that carry their hint
# Hints for a value of another type, where the type brings no hint.
BLOCK_HINT = "use a block of keys: {key: value}"
TYPE_HINTS = {
    "string_type": "use a text",
    "bool_type": "use true or false",
    "int_type": "use a whole number",
    "float_type": "use a number",
    "finite_number": "use a number that is finite",
    "list_type": "use a list: [a,b]",
    "dict_type": BLOCK_HINT,
    "model_type": BLOCK_HINT,
    "string_unicode": "use text of whole characters",
}
ARGMAX = "argmax"  # chooses nothing: the threshold stays at 0.5, the likelier class


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


def hint_of(error: ErrorDetails) -> str:
    """Gives what to write instead of a value that pydantic refused."""
    if error["type"] == HINTED:
        return str(error["ctx"]["hint"])
    return TYPE_HINTS.get(error["type"], error["msg"])


def _refuse(hint: str) -> PydanticCustomError:
    # As an argument: pydantic would read braces in the message as places to fill in.
    return PydanticCustomError(HINTED, "wrong", {"hint": hint})


def _with_hint(schema: CoreSchema, explain: Callable[[ValidationError], str]) -> CoreSchema:
    """Replaces whatever is wrong with a value by one hint."""

    def validate(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError as error:
            raise _refuse(explain(error)) from None

    return core_schema.no_info_wrap_validator_function(validate, schema)


@dataclass(frozen=True, slots=True)
class Hint:
    """Replaces pydantic's message by one hint, whatever is wrong with the value."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _with_hint(handler(source), lambda error: self.text)


@dataclass(frozen=True, slots=True)
class OrNull:
    """Adds to the hint of a value what null means: `Annotated[Count | None, OrNull("for all")]`."""

    meaning: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def explain(error: ValidationError) -> str:
            return f"{hint_of(error.errors(include_url=False)[0])}, or null {self.meaning}"

        return _with_hint(handler(source), explain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Limits a number: `Annotated[int, Range(ge=1, le=100)]`; the hint names the limits."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        limits = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        words = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
        # A limit far above real values is left out.
        shown = [f"{words[name]} {limit}" for name, limit in limits.items() if name != "le" or limit < 10**9]
        noun = "a whole number" if schema["type"] == "int" else "a number"
        return _with_hint({**schema, **limits}, lambda error: f"use {noun} {' and '.join(shown)}".strip())


@dataclass(frozen=True, slots=True)
class OneOf:
    """Accepts one of the choices; the hint suggests the nearest one."""

    choices: tuple[Any, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            if any(type(value) is type(name) and value == name for name in self.choices):
                return value
            raise _refuse(choice_hint(value, self.choices))

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Accepts a list of some of the choices, none twice; the hint suggests the nearest one."""

    choices: tuple[str, ...]
    least: int = 1

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            names = value if isinstance(value, list) and all(isinstance(name, str) for name in value) else [None]
            if len(names) >= self.least and len(set(names)) == len(names) and {*names} <= {*self.choices}:
                return value
            wrong = next((name for name in names if name is not None and name not in self.choices), None)
            raise _refuse(
                choice_hint(wrong, self.choices) if wrong else f"use a list of some of {', '.join(self.choices)}"
            )

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Accepts lists of numbers of these lengths."""

    sizes: tuple[int, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        hint = f"use a list of {' or '.join(map(str, self.sizes))} numbers"

        def check_size(values: Any) -> Any:
            if len(values) not in self.sizes:
                raise _refuse(hint)
            return values

        schema = core_schema.no_info_after_validator_function(check_size, handler(source))
        return _with_hint(schema, lambda error: hint)


@dataclass(frozen=True, slots=True)
class Variants:
    """Reads a value as one of several types.

    Args:
        choose: Takes the value and returns its type, or None. It may import the type's module.
        hint: For a value without a type.
    """

    choose: Callable[[Any], Any]
    hint: str = BLOCK_HINT

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            if (chosen := self.choose(value)) is None:
                raise _refuse(self.hint)
            return adapter_of(chosen).validate_python(value)

        return core_schema.no_info_plain_validator_function(validate)


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Makes the validator of a type."""
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return TypeAdapter(kind, config=None if is_model else ConfigDict(strict=True, allow_inf_nan=False))


def _check_path(value: str) -> str:
    if "\0" in value or len(value.encode()) > 4096 or not value.strip():
        raise ValueError("no path")
    return value


Whole = Annotated[int, Range()]
Count = Annotated[int, Range(ge=1, le=10**9)]
NonNegativeInt = Annotated[int, Range(ge=0, le=10**12)]
Seed = Annotated[int, Range(ge=0, lt=2**32)]
Tokens = Annotated[int, Range(ge=1, le=10**7)]
Positive = Annotated[float, Range(gt=0)]
Seconds = Annotated[float, Range(gt=0, le=10**7)]
NonNegative = Annotated[float, Range(ge=0)]
Share = Annotated[float, Range(ge=0, le=1)]
PositiveShare = Annotated[float, Range(gt=0, le=1)]
PartialShare = Annotated[float, Range(ge=0, lt=1)]
OpenShare = Annotated[float, Range(gt=0, lt=1)]
Weight = Annotated[float, Range(ge=-(10**6), le=10**6)]  # far above fitted weights
Weights = Annotated[tuple[Weight, ...], Field(strict=False)]
Text = Annotated[str, Field(min_length=1), Hint("use a text; a number as a text is quoted twice: \"'5'\"")]
Texts = Annotated[list[Text], Field(min_length=1), Hint("use a list of texts, [one,other]")]
PathText = Annotated[str, AfterValidator(_check_path), Hint("use a path; a name that is a number is written ./5")]
Rank = Annotated[int, Range(ge=1, le=512)]  # of LoRA adapters
Switch = Annotated[bool, Hint("use true or false")]


def parse_target_precision(aim: str) -> float | None:
    """Reads the precision that an aim asks for; None for the other aims.

    Raises:
        UserError: An unknown aim.
    """
    if aim in ("f1", "macro_f1", ARGMAX):
        return None
    match = re.fullmatch(r"precision\s*>=\s*(\d*\.?\d+)", aim.strip())
    if not match or not 0 < float(match[1]) <= 1:
        raise UserError(f"unknown aim {aim!r} for the threshold", hint="use f1, macro_f1, argmax or precision>=0.9")
    return float(match[1])
