"""Applies the overrides of a command line to a composed configuration, and explains all that cannot be applied."""

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from faithkit.errors import UserError, choice_hint, nearest, shorten
from faithkit.plugins import DATASETS, object_name, plugin_names
from faithkit.settings.config_files import choices_of

OPEN_BLOCK, BENCHMARK, DETECTION = "options", "benchmark", "_detection"
NO_CHOICE = "has no choice"
LIST_HINT = "the items of a list are numbered: data.parts.0.path=PATH"
EVERY_KEY = "see every key with --cfg job"


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[UserError]]:
    """Parses overrides; gives those that can be read, and a problem for each other one."""
    parser, overrides, problems = OverridesParser.create(), [], []
    for text in texts:
        try:
            override = parser.parse_override(text)
        except HydraException:
            problems.append(_unreadable(text))
            continue
        if override.key_or_group:
            overrides.append(override)
        else:
            problems.append(_unreadable(text))
    return overrides, problems


def repeated_keys(overrides: Sequence[Override]) -> Iterator[str]:
    """Yields a note for each key that is given twice: the last value counts."""
    last = {override.key_or_group: override.input_line for override in overrides}
    keys = [override.key_or_group for override in overrides]
    for key in dict.fromkeys(key for key in keys if keys.count(key) > 1):
        yield f"{key} is given {keys.count(key)} times: {last[key]} counts"


def sweep_values(override: Override) -> list[str]:
    """Lists the values that a sweep tries for one key."""
    try:
        return list(override.sweep_string_iterator())
    except (HydraException, ValueError) as error:
        raise UserError(f"{override.input_line}: {error}", hint="list the values: key=a,b,c") from error


def compose_config(configs: Path, config_name: str, overrides: Sequence[Override]) -> tuple[Any, list[UserError]]:
    """Composes the configuration that an entry file and overrides give.

    Hydra composes the choices of groups; the values are then set one by one, so that every wrong one is found.

    Returns:
        The configuration with the block `hydra`, and a problem for each override that cannot be applied.
    """
    overrides = _with_outside_benchmark(configs, overrides)
    last = {override.key_or_group: override for override in overrides}
    groups = {key: override for key, override in last.items() if _is_choice(configs, override)}
    problems: list[UserError] = []
    used: list[Override] = []
    unknown: list[Override] = []
    known_groups = _groups_of(configs, config_name)
    for override in groups.values():
        wrong = list(_choice_problems(configs, override))
        problems += wrong
        if not wrong:
            (used if override.key_or_group in known_groups else unknown).append(override)
    cfg = deepcopy(_compose(configs, config_name, tuple(str(one.input_line) for one in used)))
    choices = [group for group in cfg.hydra.runtime.choices if not group.startswith("hydra/")]
    known = list(dict.fromkeys([*all_keys(cfg), *choices]))
    problems += [_no_such_key(cfg, override.key_or_group, known) for override in unknown]
    for key, override in last.items():
        if key not in groups and (problem := _set_value(cfg, override, known)):
            problems.append(problem)
    return cfg, problems


def _with_outside_benchmark(configs: Path, overrides: Sequence[Override]) -> list[Override]:
    """Replaces `benchmark=NAME` or `benchmark=module:Class` by the keys that read this dataset of another package."""
    kept, added = list[Override](), list[str]()
    for override in overrides:
        is_plain = override.key_or_group == BENCHMARK and not (override.is_sweep_override() or override.is_delete())
        name = override.value() if is_plain else None
        if not isinstance(name, str) or name in (DETECTION, *choices_of(BENCHMARK, configs)):
            kept.append(override)
        elif target := object_name(name):
            name = target.rpartition(":")[2]
            added = [f"{BENCHMARK}={DETECTION}", f"{BENCHMARK}.name={name}", f"+{BENCHMARK}._target_={target}"]
        elif name in plugin_names(DATASETS):
            added = [f"{BENCHMARK}={DETECTION}", f"{BENCHMARK}.name={name}"]
        else:
            kept.append(override)
    return [*parse_overrides(added)[0], *kept]


def _is_choice(configs: Path, override: Override) -> bool:
    """Reports whether an override chooses from a group; a block of keys for a group's name sets values."""
    is_group = (configs / override.key_or_group).is_dir()
    return is_group and (override.is_sweep_override() or not isinstance(override.value(), dict))


def _choice_problems(configs: Path, override: Override) -> Iterator[UserError]:
    group, value = override.key_or_group, override.value()
    if override.is_delete():
        if not isinstance(value, str | None):
            yield UserError(f"{override.input_line} names no choice to leave out", hint=f"write '~{group}'")
        return
    known = choices_of(group, configs)
    chosen = value if isinstance(value, list) else [value]
    for name in chosen:
        if name is None:
            yield UserError(f"{group}=null chooses nothing", hint=f"leave {group} out, or write '~{group}'")
        elif name not in known and (group, name) != (BENCHMARK, DETECTION):
            yield UserError(f"{group} {NO_CHOICE} {shorten(name)}", hint=choice_hint(name, known))
    if len({str(name) for name in chosen}) < len(chosen):
        yield UserError(f"{group}: {override.input_line} names a choice twice", hint="name each once")


def _groups_of(configs: Path, config_name: str) -> set[str]:
    """Reads the groups that a script has: those of its list of defaults."""
    text = (configs / f"{config_name}.yaml").read_text(encoding="utf-8")
    return set(re.findall(r"^  - (?:optional )?([\w/]+): ", text, re.MULTILINE))


@cache
def _compose(configs: Path, config_name: str, choices: tuple[str, ...]) -> Any:
    with initialize_config_dir(config_dir=str(configs), version_base="1.3"):
        return compose(config_name, overrides=list(choices), return_hydra_config=True)


def _set_value(cfg: Any, override: Override, known: Sequence[str]) -> UserError | None:
    """Sets a value as Hydra would; returns what is wrong with it, if anything."""
    key, value = override.key_or_group, override.value()
    parent = key.rpartition(".")[0]
    is_open = _is_open(cfg, key, known) or _is_open(cfg, parent, known)
    is_new = is_open or override.is_add() or override.is_force_add()
    if not is_new and key not in known:
        return _no_such_key(cfg, key, known)
    try:
        current = OmegaConf.select(cfg, key, throw_on_missing=False)
        if override.is_delete():
            _delete(cfg, override, current)
            return None
        if isinstance(value, dict) and OmegaConf.is_list(current):
            return UserError(f"{key} is a list, and got a block", hint=f"give a list: '{key}=[{{...}}, {{...}}]'")
        if override.is_add() and current is not None and not isinstance(value, dict | list):
            return UserError(f"{key} has a value already", hint=f"leave the + out: {str(override.input_line)[1:]}")
        OmegaConf.update(cfg, key, value, merge=True, force_add=is_new)
    except TypeError as error:
        return UserError(f"a list has no such key: {shorten(str(error))}", hint=LIST_HINT)
    except (OmegaConfBaseException, UserError) as error:
        problem = shorten(str(error).splitlines()[0], 200)[1:-1]
        return UserError(
            f"{shorten(override.input_line)} cannot be set: {problem}", hint="see every key with --cfg job"
        )
    return None


def _is_open(cfg: Any, key: str, known: Sequence[str]) -> bool:
    """Reports whether a key is a block of a dataset's options that the configuration files leave empty.

    The dataset checks what is set in it.
    """
    is_options = key.rpartition(".")[2] == OPEN_BLOCK and key in known
    return is_options and not any(name.startswith(f"{key}.") for name in known)


def _delete(cfg: Any, override: Override, current: Any) -> None:
    key, value = override.key_or_group, override.value()
    if current is None:
        raise UserError("there is no such value")
    if value is not None and value != current:
        raise UserError(f"its value is {shorten(current)}")
    parent, _, name = key.rpartition(".")
    with open_dict(cfg):
        del (OmegaConf.select(cfg, parent) if parent else cfg)[name]


def all_keys(cfg: Any) -> list[str]:
    """Lists all keys of a composed configuration but Hydra's, dotted; the items of lists have none."""
    container: Any = OmegaConf.to_container(cfg)
    return list(_keys_in({name: value for name, value in container.items() if name != "hydra"}))


def _keys_in(block: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(block, dict):
        return
    for name, value in block.items():
        yield f"{prefix}{name}"
        yield from _keys_in(value, f"{prefix}{name}.")


def _no_such_key(cfg: Any, key: str, known: Iterable[str]) -> UserError:
    return UserError(
        f"{shorten(key, 60)[1:-1]}: there is no such key", hint=_parent_hint(cfg, key) or _suggestion(key, known)
    )


def _parent_hint(cfg: Any, key: str) -> str | None:
    """Gives the hint for a key in a list or in a block that is null, which are given as a whole."""
    parts = key.split(".")
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])
        value = OmegaConf.select(cfg, parent, default=0, throw_on_resolution_failure=False)
        if OmegaConf.is_list(value):
            return f"{parent} is a list, which is given whole: '{parent}=[...]'"
        if value is None:
            return f"{parent} is null; give it whole: '{parent}={{{parts[end]}: VALUE}}'"
    return None


def _suggestion(key: str, known: Iterable[str]) -> str:
    """Suggests keys of a similar last name, in a similar place."""
    by_name: dict[str, list[str]] = {}
    for other in known:
        by_name.setdefault(other.rpartition(".")[2], []).append(other)
    close = [other for name in nearest(key.rpartition(".")[2], by_name) for other in by_name[name]]
    best = nearest(key, close, 2) or close[:2]
    return f"did you mean {' or '.join(best)}? (--cfg job prints every key)" if best else EVERY_KEY


def _unreadable(text: str) -> UserError:
    shown = shorten(text)
    if not text.strip():
        return UserError("an argument is empty", hint="write key=value, or leave it out")
    if "=" not in text and not text.startswith("~"):
        name = re.sub(r"[^A-Za-z0-9_.]", "", text)[:40] or "key"
        return UserError(f"{shown} has no value", hint=f"write {name}=VALUE")
    hint = "write key=value; a value with commas, brackets or quotes is quoted: 'key=\"a, b\"'"
    return UserError(f"{shown} cannot be read", hint=hint)
