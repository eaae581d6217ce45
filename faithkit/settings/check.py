"""Checks a configuration, or the fields of options, against their kinds: every problem at once, in words of ours."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import ErrorDetails

from faithkit.errors import UserError, nearest, shorten
from faithkit.settings.types import EXPLAINED, Block

MOST_LINES = 5  # of an error that a user is shown
# What a value of another type is answered with, where its kind brings no hint of its own.
TYPE_HINTS = {
    "string_type": "use a text",
    "bool_type": "use true or false",
    "int_type": "use a whole number",
    "float_type": "use a number",
    "finite_number": "use a number that is finite",
    "list_type": "use a list: [a,b]",
    "parts_type": "use a list of {dataset: NAME, path: PATH}, or such blocks by name",
    "dict_type": "use a block of keys: {key: value}",
    "model_type": "use a block of keys: {key: value}",
    "model_attributes_type": "use a block of keys: {key: value}",
    "string_unicode": "use text of whole characters",
}


class ScriptSettings(Block):
    """All keys of a script; what the values need outside of themselves is looked for once all are of their kind."""

    def surroundings(self) -> Iterator[UserError]:
        """Yields what is missing outside of the command line: files, packages, hardware, accounts."""
        yield from ()

    def notes(self, given: Set[str]) -> Iterator[str]:
        """Yields a line for each of the given keys that has no effect beside the others."""
        yield from ()


def check_settings(config: Mapping[str, Any], schema: type[BaseModel]) -> BaseModel:
    """Reads a configuration; refuses one with wrong values, or with values that nothing here can serve.

    Args:
        config: The resolved configuration as plain containers.
        schema: The keys and their kinds; a `ScriptSettings` also looks at its surroundings.

    Raises:
        UserError: With every problem, as many as an error has lines for.
    """
    settings, problems = _read(config, schema)
    if settings is None or problems:
        raise join_problems(problems)
    return settings


def find_problems(config: Mapping[str, Any], schema: type[BaseModel]) -> list[UserError]:
    """Finds every wrong value; where there is none, what the values need outside of themselves and do not find."""
    return _read(config, schema)[1]


def _read(config: Mapping[str, Any], schema: type[BaseModel]) -> tuple[BaseModel | None, list[UserError]]:
    try:
        settings = schema.model_validate(dict(config))
    except ValidationError as error:
        return None, list(problems_of(error, config))
    return settings, list(settings.surroundings()) if isinstance(settings, ScriptSettings) else []


def refuse(problems: Iterable[UserError]) -> None:
    """Raises all problems as one error; nothing where there are none."""
    if found := list(problems):
        raise join_problems(found)


def join_problems(problems: list[UserError]) -> UserError:
    """Makes one error of several: one alone keeps its lines, of more each has one."""
    # A value that is wrong once may stand in several blocks by interpolation: it is told by its first key.
    unique = list({re.sub(r"^[\w.]+\.(?=\w+ is )", "", str(p)): p for p in reversed(problems)}.values())[::-1]
    if len(unique) == 1:
        return unique[0]
    lines = [_in_one_line(problem) for problem in unique]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} more"]
    return UserError("\n".join(lines))


def _in_one_line(error: UserError) -> str:
    place = f" (at {error.place})" if error.place else ""
    hint = f": {error.hint}" if error.hint else ""
    return " ".join(f"{error.problem}{place}{hint}".split())[:400]


def problems_of(error: ValidationError, config: Any, prefix: str = "") -> Iterator[UserError]:
    """Translates pydantic's errors: the key, the value, and what to write instead."""
    for found in error.errors(include_url=False):
        # The names of a union's members stand in angle brackets: they are no keys.
        place = [part for part in found["loc"] if not (isinstance(part, str) and part.startswith("<"))]
        yield _problem(found, place, config, prefix)


def _problem(found: ErrorDetails, place: list[int | str], config: Any, prefix: str) -> UserError:
    key = ".".join(filter(None, [prefix, *(_shown(part) for part in place)]))
    context = found.get("ctx") or {}
    own = context.get("error")
    if isinstance(own, UserError):
        return own
    if found["type"] == "missing":
        return UserError(f"{key} is not set", hint=f"set {key}=VALUE")
    if found["type"] == "extra_forbidden":
        return _unknown(key, str(place[-1]), _inside(config, place[:-1]))
    value = found["input"]
    if found["type"] == "model_type" and not isinstance(value, Mapping):
        return UserError(f"{key} is {shorten(value)}", hint=TYPE_HINTS["model_type"])
    hint = context["hint"] if found["type"] == EXPLAINED else TYPE_HINTS.get(found["type"], found["msg"])
    return UserError(f"{key} is {shorten(value)}", hint=str(hint))


def _shown(part: int | str) -> str:
    text = str(part)
    return text if text.isascii() and text.isprintable() and len(text) < 60 else shorten(text, 60)


def _unknown(key: str, name: str, siblings: Any) -> UserError:
    others = [str(other) for other in siblings if other != name] if isinstance(siblings, Mapping) else []
    guess = [key.removesuffix(name) + other for other in nearest(name, others, 2)]
    hint = f"did you mean {' or '.join(guess)}?" if guess else "leave it out; --cfg job prints every key"
    return UserError(f"{key}: there is no such key", hint=hint)


def _inside(config: Any, place: list[int | str]) -> Any:
    for part in place:
        try:
            config = config[part]
        except (KeyError, IndexError, TypeError):
            return None
    return config


@cache
def options_model(kind: type) -> type[Block]:
    """Makes the model of a dataclass: its fields with their annotated kinds and their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    own: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default) for field in fields(kind)
    }
    return create_model(kind.__name__, __base__=Block, **own)


def check_fields(options: Any, prefix: str = "") -> None:
    """Checks the fields of a dataclass against their annotated kinds; meant for its `__post_init__`.

    Args:
        prefix: The block of the configuration that stands before a key in errors.
    """
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    kind: Any = type(options)
    try:
        options_model(kind).model_validate(values)
    except ValidationError as error:
        raise join_problems(list(problems_of(error, values, prefix))) from None
