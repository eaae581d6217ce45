"""Reads a command line: arguments, composition, types and conflicts, preflight checks; all before anything is made.

All overrides that cannot be applied are explained at once.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from faithkit.errors import UserError, choice_hint, join_problems, nearest, raise_problems, shorten
from faithkit.packages import DATASETS, object_name, plugin_names
from faithkit.settings.check import check_settings, read_settings
from faithkit.settings.config_files import SWEEP_FILE, choices_of, script_of, top_keys

BENCHMARK, DETECTION = "benchmark", "_detection"
NO_CHOICE = "has no choice"
OPTION_HINT = "keys are set as key=value or --key value; see --help"


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


@dataclass
class CommandLine:
    """A script's command line.

    Args:
        configs: The folder of the configurations.
        config_name: The script's entry file there.
        arguments: What was typed after the script's name.
        settings: The `ScriptSettings` of the script as `package.module:Class`, imported when needed.
    """

    configs: Path
    config_name: str
    arguments: Sequence[str]
    settings: str

    @cached_property
    def options(self) -> argparse.Namespace:
        """The options, and the overrides.

        Raises:
            UserError: An unknown option, or an override after an option.
        """

        def fail(message: str) -> NoReturn:  # argparse would print a usage of ten lines
            raise UserError(f"an option is wrong: {message}", hint=OPTION_HINT)

        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.error = fail  # type: ignore[method-assign]
        parser.add_argument("--multirun", "-m", action="store_true")
        parser.add_argument("--cfg", "-c", choices=("job",))
        parser.add_argument("--resolve", action="store_true")
        parser.add_argument("overrides", nargs="*")
        options, others = parser.parse_known_args(list(self.arguments))
        for other in others:
            if not other.startswith("-"):
                hint = "write all key=value before the options"
                raise UserError(f"{shorten(other)} is after an option", hint=hint)
            keys = (f"--{key}" for key in top_keys(self.config_name, self.configs)[0])
            close = nearest(other, ["--help", "--multirun", "--cfg", "--resolve", *sorted(keys)], 1)
            raise UserError(
                f"unknown option {shorten(other)}", hint=f"did you mean {close[0]}?" if close else OPTION_HINT
            )
        return options

    @property
    def overrides(self) -> list[str]:
        """The keys and choices as they were typed, without options.

        Lightning adds keys of Hydra to the commands of the further processes of a training, which Hydra would read.
        """
        overrides = list(self.options.overrides)
        return [one for one in overrides if not one.startswith("hydra.")] if "LOCAL_RANK" in os.environ else overrides

    def compose(self) -> Any:
        """Composes the configuration of one job.

        Raises:
            UserError: With every override that is wrong, and every wrong value of the others.
        """
        overrides, problems = parse_overrides(self.overrides)
        cfg, found = compose_config(self.configs, self.config_name, overrides)
        problems += found
        cfg.hydra.overrides.task = self.overrides
        HydraConfig.instance().set_config(cfg)  # for callers that ask for the overrides of this command
        with open_dict(cfg):
            del cfg["hydra"]
        if not problems:
            return cfg
        if not any(NO_CHOICE in one.problem for one in problems):  # else the values are those of another choice
            with suppress(OmegaConfBaseException):
                if not OmegaConf.missing_keys(cfg):  # which other values need
                    config: Any = OmegaConf.to_container(cfg, resolve=True)
                    problems += read_settings(config, resolve_name(self.settings))[1]
        raise join_problems(problems)

    def check(self, cfg: Any) -> Iterator[str]:
        """Checks the values of a composed configuration; yields notes on keys that have no effect.

        Raises:
            UserError: With every problem.
        """
        overrides, _ = parse_overrides(self.overrides)
        keys = [override.key_or_group for override in overrides]
        last = {override.key_or_group: override.input_line for override in overrides}
        for key in last:
            if keys.count(key) > 1:
                yield f"{key} is given {keys.count(key)} times: {last[key]} counts"
        if (resume := cfg.get("resume")) is not None:  # the run's configuration is checked when it is opened
            hint = "set resume to a run's folder"
            if not isinstance(resume, str) or "\0" in resume or not resume:
                raise UserError(f"resume is {shorten(resume)}", hint=hint)
            file = Path(resume) / "config.yaml"
            if not file.is_file():
                if (Path(resume) / SWEEP_FILE).is_file():
                    hint = f"this is a sweep, which goes on with: faithkit {self.config_name} -m resume={resume}"
                raise UserError("nothing to resume: no config.yaml", place=resume, hint=hint)
            text, node = file.read_text(encoding="utf-8", errors="replace")[:1_000_000], None
            with suppress(yaml.YAMLError, RecursionError):  # damage is explained when the run is opened
                node = yaml.compose(text, Loader=yaml.SafeLoader)
            found = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
            if (made_by := script_of(found, self.config_name)) != self.config_name:
                problem = f"this run is one of {made_by}, and cannot be resumed by {self.config_name}"
                raise UserError(problem, place=resume, hint=f"faithkit {made_by} resume={resume}")
            return
        missing = sorted(OmegaConf.missing_keys(cfg))
        try:
            config: Any = OmegaConf.to_container(cfg, resolve=True)
        except InterpolationToMissingValueError:
            raise_problems(UserError(f"{key} is not set", hint=f"give {key}=VALUE") for key in missing)
            raise
        settings: Any = check_settings(_without_missing(config), resolve_name(self.settings))
        yield from settings.notes(set(keys))
        scales = sorted(key for key in last if key.startswith("scale."))
        text = OmegaConf.to_yaml(cfg) if scales else ""
        for key in scales:
            if f"${{{key}}}" not in text and f"${{{key}." not in text:
                yield f"{key} has no effect: no key here takes its value"

    def _swept_values(self) -> list[list[str]]:
        """Lists for each override the overrides that a sweep over it consists of."""
        overrides, problems = parse_overrides(self.overrides)
        raise_problems(problems)
        found = []
        for override in overrides:
            text = str(override.input_line)
            head = text.partition("=")[0]
            is_sweep = override.is_sweep_override()
            found.append([f"{head}={value}" for value in sweep_values(override)] if is_sweep else [text])
        return found

    def jobs(self) -> "list[CommandLine]":
        """Lists the command lines of a sweep: every combination of the values."""
        return [replace(self, arguments=arguments) for arguments in product(*self._swept_values())]

    def check_sweep(self, use: Callable[[Any], None] = lambda cfg: None) -> None:
        """Checks each value of a sweep once, with the first values of the other keys.

        Args:
            use: Gets the configurations in which the values are tried.

        Raises:
            UserError: Of the first job that is wrong, with every problem.
        """
        values = self._swept_values()
        first = [some[0] for some in values]
        jobs = [
            first,
            *([*first[:at], value, *first[at + 1 :]] for at, some in enumerate(values) for value in some[1:]),
        ]
        for arguments in jobs[:100]:  # before the first job runs: about ten seconds
            job = replace(self, arguments=arguments)
            cfg = job.compose()
            for _ in job.check(cfg):
                pass
            use(cfg)


def _without_missing(value: Any) -> Any:
    """Leaves out keys that are not set, whose value is `???`."""
    if isinstance(value, dict):
        return {key: _without_missing(item) for key, item in value.items() if item != "???"}
    return [_without_missing(item) for item in value] if isinstance(value, list) else value
