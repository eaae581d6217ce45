"""Checks a configuration, or the fields of options, against their types; reports every problem at once."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, get_type_hints

from pydantic import GetCoreSchemaHandler, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, core_schema

from faithkit.errors import UserError, join_problems, nearest, raise_problems, shorten
from faithkit.settings.types import Block, Ineffective, Preflight, adapter_of, find_conflicts, hint_of

Model = TypeVar("Model", bound=Block)
Options = TypeVar("Options")


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


def find_missing(settings: Any, prefix: str = "", script: ScriptSettings | None = None) -> Iterator[UserError]:
    """Yields what settings need outside of the command line: files, packages, hardware, accounts.

    These are the `Preflight` marks of keys and the method `preflight` of blocks, those within other blocks first.

    Args:
        settings: Those of a script, or a value within them.
        prefix: The key of the value, which its own keys follow.
        script: The settings that the value is part of; None for `settings`.
    """
    script = script or settings
    if isinstance(settings, Mapping | list):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        for name, item in items:
            yield from find_missing(item, f"{prefix}{name}.", script)
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
        yield from find_missing(value, f"{key}.", script)
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
    settings, problems = read_settings(config, schema)
    raise_problems(problems)
    assert settings is not None
    return settings


def read_settings(config: Mapping[str, Any], schema: type[Model]) -> tuple[Model | None, list[UserError]]:
    """Reads a configuration; gives every wrong value or, where all are valid, what the preflight checks find."""
    try:
        settings = schema.model_validate(dict(config))
    except ValidationError as error:
        return None, list(problems_of(error, config))
    return settings, list(find_missing(settings)) if isinstance(settings, ScriptSettings) else []


def problems_of(error: ValidationError, config: Any, prefix: str = "") -> Iterator[UserError]:
    """Translates pydantic's errors: the key, the value, and what to write instead."""
    for found in error.errors(include_url=False):
        *parents, name = found["loc"] or ("",)
        parts = [
            part if part.isascii() and part.isprintable() and len(part) < 60 else shorten(part, 60)
            for part in map(str, found["loc"])
        ]
        key = ".".join(filter(None, [prefix, *parts]))
        raised = found.get("ctx", {}).get("error")
        if isinstance(raised, UserError):
            yield raised
        elif found["type"] == "missing":
            yield UserError(f"{key} is not set", hint=f"set {key}=VALUE")
        elif found["type"] == "extra_forbidden":
            block = config
            for parent in parents:
                try:
                    block = block[parent]
                except (KeyError, IndexError, TypeError):
                    block = None
            others = [str(other) for other in block if other != name] if isinstance(block, Mapping) else []
            guess = [key.removesuffix(str(name)) + other for other in nearest(str(name), others, 2)]
            hint = f"did you mean {' or '.join(guess)}?" if guess else "leave it out; --cfg job prints every key"
            yield UserError(f"{key}: there is no such key", hint=hint)
        else:
            yield UserError(f"{key} is {shorten(found['input'])}", hint=hint_of(found))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def options(block: str = "") -> Callable[[type[Options]], type[Options]]:
    """Makes a dataclass of options. Its constructor checks the values by type and by the table `conflicts`.

    A block of a configuration may have such a class as the type of a key.

    Args:
        block: The block of the configuration, which errors name before a key.
    """

    def check(options: Any) -> None:
        kind: Any = type(options)
        values = {field.name: getattr(options, field.name) for field in fields(kind)}
        checked = _validate(options_model(kind).model_validate, values, block)
        for name in values:  # as declared: a list may become a tuple, a whole number a float
            object.__setattr__(options, name, getattr(checked, name))
        raise_problems(find_conflicts(options, getattr(kind, "conflicts", ())))

    def make_schema(kind: Any, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
            return value if isinstance(value, kind) else kind(**dict(validate(value)))

        dump = core_schema.plain_serializer_function_ser_schema(asdict)
        schema = handler.generate_schema(options_model(kind))
        return core_schema.no_info_wrap_validator_function(read, schema, serialization=dump)

    def decorate(kind: Any) -> Any:
        kind.__post_init__, kind.__get_pydantic_core_schema__ = check, classmethod(make_schema)
        return dataclass(frozen=True, slots=True, kw_only=True)(kind)

    return decorate


@cache
def options_model(kind: Any, complete: bool = False) -> type[Block]:
    """Makes the pydantic model of a dataclass of options: its fields with their types and defaults.

    Args:
        complete: Fields with a default are required too.
    """
    hints = get_type_hints(kind, include_extras=True)
    members: dict[str, Any] = {
        field.name: (hints[field.name], ... if complete or field.default is MISSING else field.default)
        for field in fields(kind)
    }
    return create_model(kind.__name__, __base__=Block, **members)


def read_stored(kind: type[Options], stored: Any, block: str, *, complete: bool = True) -> Options:
    """Reads options that were stored.

    Args:
        complete: They were stored with all their fields, those with a default too.

    Raises:
        UserError: A field is missing, unknown or wrong.
    """
    model = options_model(cast(Any, kind), complete)
    values = _validate(model.model_validate, stored, block)
    return kind(**dict(values))


def check_value(name: str, value: Any, kind: Any) -> None:
    """Refuses a value that is not of an annotated type, such as `Count`."""
    _validate(adapter_of(kind).validate_python, value, name)


def _validate(validate: Callable[[Any], Any], value: Any, name: str) -> Any:
    try:
        return validate(value)
    except ValidationError as error:
        raise join_problems(list(problems_of(error, value, name))) from None


@cache
def with_options(base: type[Model], options: type) -> type[Model]:
    """Adds the fields of a dataclass of options to a block, and the checks that the dataclass makes."""
    members = options_model(options).model_fields

    def build(self: Any) -> Any:
        options(**{field: getattr(self, field) for field in members})
        return self

    validators: Any = {"build": model_validator(mode="after")(build)}
    extra: Any = {field: (info.annotation, info) for field, info in members.items()}
    return create_model(options.__name__, __base__=base, __validators__=validators, **extra)
