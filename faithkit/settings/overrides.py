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

BENCHMARK, DETECTION = "benchmark", "_detection"
NO_CHOICE = "has no choice"


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[UserError]]:
    """Parses overrides; gives those that can be read, and a problem for each other one."""
    parser, overrides, problems = OverridesParser.create(), [], []
    for text in texts:
        try:
            override = parser.parse_override(text)
        except HydraException:
            override = None
        shown = shorten(text)
        if override is not None and override.key_or_group:
            overrides.append(override)
        elif not text.strip():
            problems.append(UserError("an argument is empty", hint="write key=value, or leave it out"))
        elif "=" not in text and not text.startswith("~"):
            name = re.sub(r"[^A-Za-z0-9_.]", "", text)[:40] or "key"
            problems.append(UserError(f"{shown} has no value", hint=f"write {name}=VALUE"))
        else:
            hint = "write key=value; a value with commas, brackets or quotes is quoted: 'key=\"a, b\"'"
            problems.append(UserError(f"{shown} cannot be read", hint=hint))
    return overrides, problems


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
    kept, added = list[Override](), list[str]()
    for override in overrides:
        is_plain = override.key_or_group == BENCHMARK and not (override.is_sweep_override() or override.is_delete())
        name = override.value() if is_plain else None
        if not isinstance(name, str) or name in (DETECTION, *choices_of(BENCHMARK, configs)):
            kept.append(override)
        elif (target := object_name(name)) or name in plugin_names(DATASETS):  # the keys that read another's dataset
            name = target.rpartition(":")[2] if target else name
            added = [f"{BENCHMARK}={DETECTION}", f"{BENCHMARK}.name={name}"]
            added += [f"+{BENCHMARK}._target_={target}"] if target else []
        else:
            kept.append(override)
    overrides = [*parse_overrides(added)[0], *kept]
    last = {override.key_or_group: override for override in overrides}
    groups = {  # a block of keys for a group's name sets values
        key: one
        for key, one in last.items()
        if (configs / key).is_dir() and (one.is_sweep_override() or not isinstance(one.value(), dict))
    }
    problems: list[UserError] = []
    used: list[Override] = []
    unknown: list[Override] = []
    text = (configs / f"{config_name}.yaml").read_text(encoding="utf-8")
    known_groups = re.findall(r"^  - (?:optional )?([\w/]+): ", text, re.MULTILINE)  # of its list of defaults
    for override in groups.values():
        wrong = list(_choice_problems(configs, override))
        problems += wrong
        if not wrong:
            (used if override.key_or_group in known_groups else unknown).append(override)
    cfg = deepcopy(_compose(configs, config_name, tuple(str(one.input_line) for one in used)))
    choices = [group for group in cfg.hydra.runtime.choices if not group.startswith("hydra/")]
    container: Any = OmegaConf.to_container(cfg)
    keys = _keys_in({name: value for name, value in container.items() if name != "hydra"})
    known = list(dict.fromkeys([*keys, *choices]))
    problems += [_no_such_key(cfg, override.key_or_group, known) for override in unknown]
    for key, override in last.items():
        if key not in groups and (problem := _set_value(cfg, override, known)):
            problems.append(problem)
    return cfg, problems


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


@cache
def _compose(configs: Path, config_name: str, choices: tuple[str, ...]) -> Any:
    with initialize_config_dir(config_dir=str(configs), version_base="1.3"):
        return compose(config_name, overrides=list(choices), return_hydra_config=True)


def _set_value(cfg: Any, override: Override, known: Sequence[str]) -> UserError | None:
    """Sets a value as Hydra would; returns what is wrong with it, if anything."""
    key, value = override.key_or_group, override.value()
    parent = key.rpartition(".")[0]
    # A block of a dataset's options that the configuration files leave empty: the dataset checks what is set in it.
    is_open = any(
        block.rpartition(".")[2] == "options"
        and block in known
        and not any(name.startswith(f"{block}.") for name in known)
        for block in (key, parent)
    )
    is_new = is_open or override.is_add() or override.is_force_add()
    if not is_new and key not in known:
        return _no_such_key(cfg, key, known)
    try:
        current = OmegaConf.select(cfg, key, throw_on_missing=False)
        if override.is_delete():
            if current is None:
                raise UserError("there is no such value")
            if value is not None and value != current:
                raise UserError(f"its value is {shorten(current)}")
            with open_dict(cfg):
                del (OmegaConf.select(cfg, parent) if parent else cfg)[key.rpartition(".")[2]]
            return None
        if isinstance(value, dict) and OmegaConf.is_list(current):
            return UserError(f"{key} is a list, and got a block", hint=f"give a list: '{key}=[{{...}}, {{...}}]'")
        if override.is_add() and current is not None and not isinstance(value, dict | list):
            return UserError(f"{key} has a value already", hint=f"leave the + out: {str(override.input_line)[1:]}")
        OmegaConf.update(cfg, key, value, merge=True, force_add=is_new)
    except TypeError as error:
        hint = "the items of a list are numbered: data.parts.0.path=PATH"
        return UserError(f"a list has no such key: {shorten(str(error))}", hint=hint)
    except (OmegaConfBaseException, UserError) as error:
        problem = shorten(str(error).splitlines()[0], 200)[1:-1]
        return UserError(
            f"{shorten(override.input_line)} cannot be set: {problem}", hint="see every key with --cfg job"
        )
    return None


def _keys_in(block: Any, prefix: str = "") -> Iterator[str]:
    """Lists all keys of a composed configuration, dotted; the items of lists have none."""
    if not isinstance(block, dict):
        return
    for name, value in block.items():
        yield f"{prefix}{name}"
        yield from _keys_in(value, f"{prefix}{name}.")


def _no_such_key(cfg: Any, key: str, known: Iterable[str]) -> UserError:
    problem = f"{shorten(key, 60)[1:-1]}: there is no such key"
    parts = key.split(".")
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])
        value = OmegaConf.select(cfg, parent, default=0, throw_on_resolution_failure=False)
        if OmegaConf.is_list(value):
            return UserError(problem, hint=f"{parent} is a list, which is given whole: '{parent}=[...]'")
        if value is None:
            return UserError(problem, hint=f"{parent} is null; give it whole: '{parent}={{{parts[end]}: VALUE}}'")
    # Keys of a similar last name, in a similar place.
    by_name: dict[str, list[str]] = {}
    for other in known:
        by_name.setdefault(other.rpartition(".")[2], []).append(other)
    close = [other for name in nearest(parts[-1], by_name) for other in by_name[name]]
    if best := nearest(key, close, 2) or close[:2]:
        return UserError(problem, hint=f"did you mean {' or '.join(best)}? (--cfg job prints every key)")
    return UserError(problem, hint="see every key with --cfg job")
