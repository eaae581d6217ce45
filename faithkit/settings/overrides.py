"""Explains the overrides of a command line together: what cannot be read, choices and keys that there are not."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faithkit.cli import choices_of
from faithkit.errors import UserError, choice_hint, nearest, shorten

# Found once Hydra is wanted: `--help` must not wait for it.
NO_SUCH_KEY = "see every key with --cfg job"


@dataclass(slots=True)
class Overrides:
    """The overrides of a command line as Hydra reads them, and what is wrong with those that it cannot.

    Args:
        configs: The folder of the configurations.
        texts: As they were typed.
        closed: No choices but those of `configs`: no folder of the user's own is searched.
    """

    configs: Path
    texts: Sequence[str]
    closed: bool = True
    parsed: list[Any] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # keys and groups whose overrides cannot be used

    def __post_init__(self) -> None:
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException

        parser = OverridesParser.create()
        for text in self.texts:
            try:
                override = parser.parse_override(text)
            except HydraException as error:
                if "ConfigLoader" not in str(error):  # glob(...), which is read with the configurations at hand
                    self.problems.append(_unreadable(text))
                continue
            if not override.key_or_group:
                self.problems.append(_unreadable(text))
                continue
            self.parsed.append(override)
            if self.closed and self._is_group(override) and (wrong := list(self._unknown_choices(override))):
                self.problems += wrong
                self.unknown.add(override.key_or_group)

    def _is_group(self, override: Any) -> bool:
        name = override.key_or_group
        return not name.startswith("hydra") and (self.configs / name).is_dir()

    def _unknown_choices(self, override: Any) -> Iterator[UserError]:
        group = override.key_or_group
        known = choices_of(group, self.configs)
        if override.is_delete() and not isinstance(override.value(), str | None):
            yield UserError(f"{override.input_line} names no choice to leave out", hint=f"write '~{group}'")
            return
        for value in _values(override):
            if isinstance(value, dict):
                continue  # values of the block, not a choice
            if value is None:
                yield UserError(f"{group}=null chooses nothing", hint=f"leave {group} out, or write '~{group}'")
            elif value not in known:
                yield UserError(f"{group} has no choice {shorten(value)}", hint=choice_hint(value, known))
        chosen = override.value() if not override.is_sweep_override() and not override.is_delete() else None
        if isinstance(chosen, list) and len({str(value) for value in chosen}) < len(chosen):
            yield UserError(f"{group}: {override.input_line} names a choice twice", hint="name each once")

    def given(self) -> set[str]:
        """The keys and groups that are set."""
        return {override.key_or_group for override in self.parsed}

    def twice(self) -> Iterator[str]:
        """Yields a line for each key that is set twice: the last one counts."""
        last = {override.key_or_group: override.input_line for override in self.parsed}
        keys = [override.key_or_group for override in self.parsed]
        for key in dict.fromkeys(key for key in keys if keys.count(key) > 1):
            yield f"{key} is given {keys.count(key)} times: {last[key]} counts"

    def compose_choices(self, config_name: str) -> tuple[Any, set[str]]:
        """Composes the configuration of the choices alone, without those of groups that this script does not have."""
        from hydra.errors import HydraException

        groups = [override for override in self._usable() if self._is_group(override)]
        while True:
            try:
                return compose_with_choices(self.configs, config_name, _lines(groups))
            except HydraException as error:
                if not groups:
                    raise
                wrong = re.search(r"Could not override '([^']+)'", str(error))
                others = [override for override in groups if wrong and override.key_or_group != wrong[1]]
                groups = others if len(others) < len(groups) else []

    def unknown_keys(self, cfg: Any, choices: Iterable[str]) -> Iterator[UserError]:
        """Yields a problem for each key that the composed choices do not have."""
        known = dict.fromkeys([*all_keys(cfg), *choices])
        for override in self._usable():
            key = override.key_or_group
            if override.is_add() or override.is_force_add() or key.startswith("hydra"):
                continue
            if key not in known:
                self.unknown.add(key)
                hint = _whole_parent(cfg, key) or _guess(key, known)
                yield UserError(f"{shorten(key, 60)[1:-1]}: there is no such key", hint=hint)

    def blocks_for_lists(self, cfg: Any) -> Iterator[UserError]:
        """Yields a problem for each block that is given for a list."""
        from omegaconf import OmegaConf

        for override in self._usable():
            key = override.key_or_group
            if override.is_delete() or override.is_sweep_override() or not isinstance(override.value(), dict):
                continue
            if OmegaConf.is_list(OmegaConf.select(cfg, key, default=None)):
                yield UserError(f"{key} is a list, and got a block", hint=f"give a list: '{key}=[{{...}}, {{...}}]'")

    def set_values(self, cfg: Any) -> None:
        """Sets the values in the composed choices as Hydra does, but for those that are wrong by themselves."""
        from hydra._internal.config_loader_impl import ConfigLoaderImpl

        values = [
            override
            for override in self._usable()
            if not (self._is_group(override) or override.is_sweep_override())
            and not override.key_or_group.startswith("hydra")
        ]
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)

    def _usable(self) -> list[Any]:
        """The overrides that can be read, of keys that are not known to be wrong; of a key given twice the last."""
        last = {override.key_or_group: override for override in self.parsed}
        return [override for key, override in last.items() if key not in self.unknown]


def compose(configs: Path, config_name: str, overrides: Sequence[str]) -> Any:
    """Composes a configuration, with Hydra's own block in it."""
    import hydra

    with hydra.initialize_config_dir(config_dir=str(configs), version_base="1.3"), explained_lists():
        return hydra.compose(config_name, overrides=list(overrides), return_hydra_config=True)


@contextmanager
def explained_lists() -> Iterator[None]:
    """Explains a key within a list, of which OmegaConf says that its index is no number."""
    try:
        yield
    except TypeError as error:
        hint = "the items of a list are numbered: data.parts.0.path=PATH"
        raise UserError(f"a list has no such key: {shorten(str(error))}", hint=hint) from error


def compose_with_choices(configs: Path, config_name: str, overrides: Sequence[str]) -> tuple[Any, set[str]]:
    """Composes a configuration; gives it with the names of its groups."""
    from omegaconf import open_dict

    cfg = compose(configs, config_name, overrides)
    groups = {str(name) for name in cfg.hydra.runtime.choices if not str(name).startswith("hydra")}
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg, groups


def _lines(overrides: Iterable[Any]) -> list[str]:
    """The overrides as text, without sweeps: no one configuration can be composed of these."""
    return [override.input_line for override in overrides if not override.is_sweep_override()]


def _values(override: Any) -> list[Any]:
    if override.is_delete():
        return []
    if override.is_sweep_override():
        from hydra.errors import HydraException

        try:
            return [str(value) for value in override.sweep_string_iterator()]
        except (HydraException, ValueError):  # a sweep over files, or by steps of 0: Hydra's own run explains them
            return []
    value = override.value()
    return list(value) if isinstance(value, list) else [value]


def values_of_sweep(override: Any) -> list[str]:
    """Gives the values of a sweep over one key as texts; of an interval both its ends."""
    from hydra.core.override_parser.types import IntervalSweep

    value = override.value()
    if isinstance(value, IntervalSweep):
        return [repr(value.start), repr(value.end)]
    return list(override.sweep_string_iterator())


def all_keys(cfg: Any) -> list[str]:
    """All keys of a composed configuration, dotted; what stands in lists has none."""
    from omegaconf import OmegaConf

    return list(_keys_in(OmegaConf.to_container(cfg)))


def _keys_in(block: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(block, dict):
        return
    for name, value in block.items():
        yield f"{prefix}{name}"
        yield from _keys_in(value, f"{prefix}{name}.")


def _whole_parent(cfg: Any, key: str) -> str | None:
    """The hint for a key inside a list or inside a block that is null: these are given whole."""
    from omegaconf import OmegaConf

    parts = key.split(".")
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])
        value = OmegaConf.select(cfg, parent, default=0)
        if OmegaConf.is_list(value):
            return f"{parent} is a list, which is given whole: '{parent}=[...]'"
        if value is None:
            return f"{parent} is null; give it whole: '{parent}={{{parts[end]}: VALUE}}'"
    return None


def _guess(key: str, known: Iterable[str]) -> str:
    """The keys that were perhaps meant: of a like last name, in a like place."""
    by_name: dict[str, list[str]] = {}
    for other in known:
        by_name.setdefault(other.rpartition(".")[2], []).append(other)
    names = nearest(key.rpartition(".")[2], by_name)
    close = [other for name in names for other in by_name[name]]
    best = nearest(key, close, 2) or close[:2]
    return f"did you mean {' or '.join(best)}? (--cfg job prints every key)" if best else NO_SUCH_KEY


def _unreadable(text: str) -> UserError:
    shown = shorten(text)
    if not text.strip():
        return UserError("an argument is empty", hint="write key=value, or leave it out")
    if "=" not in text and not text.startswith("~"):
        return UserError(
            f"{shown} has no value", hint=f"write {re.sub(r'[^A-Za-z0-9_.]', '', text)[:40] or 'key'}=VALUE"
        )
    hint = "write key=value; a value with commas, brackets or quotes is quoted: 'key=\"a, b\"'"
    return UserError(f"{shown} cannot be read", hint=hint)
