"""Checks a configuration, or the fields of options, against their types; reports every problem at once."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import GetCoreSchemaHandler, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from faithkit.errors import UserError, join_problems, nearest, raise_problems, shorten
from faithkit.settings.types import HINTED, Block, Ineffective, Preflight, find_conflicts

# Hints for a value of another type, where the type brings no hint.
_BLOCK_HINT = "use a block of keys: {key: value}"
TYPE_HINTS = {
    "string_type": "use a text",
    "bool_type": "use true or false",
    "int_type": "use a whole number",
    "float_type": "use a number",
    "finite_number": "use a number that is finite",
    "list_type": "use a list: [a,b]",
    "parts_type": "use a list of {dataset: NAME, path: PATH}, or such blocks by name",
    "dict_type": _BLOCK_HINT,
    "model_type": _BLOCK_HINT,
    "model_attributes_type": _BLOCK_HINT,
    "string_unicode": "use text of whole characters",
}
Model = TypeVar("Model", bound=Block)


class ScriptSettings(Block):
    """All keys of a script.

    Attributes:
        ineffective: The table of keys without effect.
    """

    ineffective: ClassVar[tuple[Ineffective, ...]] = ()

    def notes(self, given: Set[str]) -> Iterator[str]:
        """Yields a line for each given key that has no effect."""
        for row in self.ineffective:
            if not row.when(self):
                continue
            for key in sorted(given):
                if any(key == block or key.startswith(f"{block}.") for block in row.keys):
                    yield f"{key} has no effect {row.reason.format(s=self)}"


def find_missing(script: ScriptSettings) -> Iterator[UserError]:
    """Yields what settings need outside of the command line: files, packages, hardware, accounts.

    These are the `Preflight` marks of keys and the method `preflight` of blocks, those within other blocks first.
    """
    yield from _missing_in(script, "", script)


def _missing_in(settings: Any, prefix: str, script: ScriptSettings) -> Iterator[UserError]:
    if isinstance(settings, Mapping | list):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        for name, item in items:
            yield from _missing_in(item, f"{prefix}{name}.", script)
        return
    if not isinstance(settings, Block) and not is_dataclass(settings):
        return
    kind: Any = type(settings)
    model: type[Block] = kind if issubclass(kind, Block) else options_model(kind)
    for name, field in model.model_fields.items():
        value, key = getattr(settings, name), f"{prefix}{field.alias or name}"
        for mark in field.metadata:
            if isinstance(mark, Preflight) and value is not None:
                yield from mark.check(key, value)
        yield from _missing_in(value, f"{key}.", script)
    if isinstance(settings, Block):
        yield from settings.preflight(script)


def check_settings(config: Mapping[str, Any], schema: type[Model]) -> Model:
    """Reads a configuration, and refuses values that are wrong or that need something that is missing.

    Args:
        config: The resolved configuration as plain containers.
        schema: The keys and their types; of `ScriptSettings` the preflight checks are made too.

    Raises:
        UserError: With every problem, as many as an error has lines for.
    """
    settings, problems = _read(config, schema)
    raise_problems(problems)
    assert settings is not None
    return settings


def find_problems(config: Mapping[str, Any], schema: type[Block]) -> list[UserError]:
    """Finds every wrong value; where all are valid, what the preflight checks find."""
    return _read(config, schema)[1]


def _read(config: Mapping[str, Any], schema: type[Model]) -> tuple[Model | None, list[UserError]]:
    try:
        settings = schema.model_validate(dict(config))
    except ValidationError as error:
        return None, list(problems_of(error, config))
    return settings, list(find_missing(settings)) if isinstance(settings, ScriptSettings) else []


def problems_of(error: ValidationError, config: Any, prefix: str = "") -> Iterator[UserError]:
    """Translates pydantic's errors: the key, the value, and what to write instead."""
    for found in error.errors(include_url=False):
        # The tags of a union's members are in angle brackets: they are no keys.
        place = [part for part in found["loc"] if not (isinstance(part, str) and part.startswith("<"))]
        yield _problem(found, place, config, prefix)


def _problem(found: ErrorDetails, place: list[int | str], config: Any, prefix: str) -> UserError:
    key = ".".join(filter(None, [prefix, *(_printable(part) for part in place)]))
    context = found.get("ctx") or {}
    if isinstance(raised := context.get("error"), UserError):
        return raised
    if found["type"] == "missing":
        return UserError(f"{key} is not set", hint=f"set {key}=VALUE")
    if found["type"] == "extra_forbidden":
        return _unknown(key, str(place[-1]), _select(config, place[:-1]))
    value = found["input"]
    if found["type"] == "model_type" and not isinstance(value, Mapping):
        return UserError(f"{key} is {shorten(value)}", hint=_BLOCK_HINT)
    hint = context["hint"] if found["type"] == HINTED else TYPE_HINTS.get(found["type"], found["msg"])
    return UserError(f"{key} is {shorten(value)}", hint=str(hint))


def _printable(part: int | str) -> str:
    text = str(part)
    return text if text.isascii() and text.isprintable() and len(text) < 60 else shorten(text, 60)


def _unknown(key: str, name: str, siblings: Any) -> UserError:
    others = [str(other) for other in siblings if other != name] if isinstance(siblings, Mapping) else []
    guess = [key.removesuffix(name) + other for other in nearest(name, others, 2)]
    hint = f"did you mean {' or '.join(guess)}?" if guess else "leave it out; --cfg job prints every key"
    return UserError(f"{key}: there is no such key", hint=hint)


def _select(config: Any, place: list[int | str]) -> Any:
    for part in place:
        try:
            config = config[part]
        except (KeyError, IndexError, TypeError):
            return None
    return config


@cache
def options_model(kind: type) -> type[Block]:
    """Makes the pydantic model of a dataclass of options: its fields with their types and defaults."""
    hints = get_type_hints(kind, include_extras=True)
    members: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default) for field in fields(kind)
    }
    return create_model(kind.__name__, __base__=Block, **members)


def check_fields(options: Any, prefix: str = "") -> None:
    """Checks a dataclass of options against its types and its table `conflicts`; meant for `__post_init__`.

    Args:
        prefix: The block of the configuration, which errors name before a key.
    """
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    kind: Any = type(options)
    try:
        options_model(kind).model_validate(values)
    except ValidationError as error:
        raise join_problems(list(problems_of(error, values, prefix))) from None
    raise_problems(find_conflicts(options, getattr(kind, "conflicts", ())))


def with_options(base: type[Model], options: type, name: str) -> type[Model]:
    """Adds the fields of a dataclass of options to a block, and the checks that the dataclass makes."""
    members = options_model(options).model_fields

    def build(self: Any) -> Any:
        options(**{field: getattr(self, field) for field in members})
        return self

    validators: Any = {"build": model_validator(mode="after")(build)}
    extra: Any = {field: (info.annotation, info) for field, info in members.items()}
    return create_model(name, __base__=base, __validators__=validators, **extra)


@dataclass(frozen=True, slots=True)
class AsBlock:
    """Reads a block of the configuration as a dataclass of options: `Annotated[Decoding, AsBlock()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def build(block: Block) -> Any:
            return source(**{name: getattr(block, name) for name in type(block).model_fields})

        dump = core_schema.plain_serializer_function_ser_schema(asdict)
        block = handler.generate_schema(options_model(source))
        return core_schema.no_info_after_validator_function(build, block, serialization=dump)
