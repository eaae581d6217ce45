"""Kinds of values: each names its type, its range, and the hint that a wrong value is answered with."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from faithkit.errors import choice_hint

PRECISIONS = ("auto", "32-true", "bf16")  # of models that write
KEPT_CHECKPOINTS = ("none", "best", KEEP_ALL := "all")  # of a training that has ended
DETECTOR_PRECISIONS = (*PRECISIONS, "int8", "onnx")
EXPLAINED = "explained"  # the type of errors that bring their hint
# Built when it is first used: a script needs a few of all models.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Block(BaseModel):
    """A block of the configuration: its keys and their kinds; another key, or a text for a number, is refused."""

    model_config = STRICT


class OpenBlock(Block):
    """A block that may have further keys, which are not looked at."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Hint:
    """Answers every wrong value of a kind with one hint, whatever is wrong about it."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def explained(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
            try:
                return check(value)
            except ValidationError:
                # Braces would be read as places to fill in.
                raise PydanticCustomError(EXPLAINED, "wrong", {"hint": self.text}) from None

        return core_schema.no_info_wrap_validator_function(explained, handler(source))


@dataclass(frozen=True, slots=True)
class OneOf:
    """Takes one of some names; a near miss is told what it may have meant."""

    choices: tuple[Any, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def chosen(value: Any) -> Any:
            if any(type(value) is type(name) and value == name for name in self.choices):
                return value
            raise PydanticCustomError(EXPLAINED, "wrong", {"hint": choice_hint(value, self.choices)})

        return core_schema.no_info_plain_validator_function(chosen)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Takes one of some names, or a list of several."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def chosen(value: Any) -> Any:
            names = value if isinstance(value, list) else [value]
            if names and all(isinstance(name, str) and name in self.choices for name in names):
                return value
            wrong = next((name for name in names if name not in self.choices), value)
            raise PydanticCustomError(EXPLAINED, "wrong", {"hint": choice_hint(wrong, self.choices)})

        return core_schema.no_info_plain_validator_function(chosen)


def _is_path(value: str) -> str:
    if "\0" in value or len(value.encode()) > 4096 or not value.strip():
        raise ValueError("no path")
    return value


@dataclass(frozen=True, slots=True)
class _Path:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_is_path, handler(source))


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
Text = Annotated[str, Field(min_length=1), Hint("use a text; a number as a text is quoted twice: \"'5'\"")]
PathText = Annotated[str, _Path(), Hint("use a path; a name that is a number is written ./5")]
Switch = Annotated[bool, Hint("use true or false")]
