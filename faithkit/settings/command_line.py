"""Reads a command line: arguments, composition, types and conflicts, preflight checks; all before anything is made."""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from faithkit.errors import UserError, join_problems, nearest, raise_problems, shorten
from faithkit.settings.check import check_settings, read_settings
from faithkit.settings.config_files import SWEEP_FILE, script_of, top_keys
from faithkit.settings.overrides import NO_CHOICE, compose_config, parse_overrides, sweep_values

OPTION_HINT = "keys are set as key=value or --key value; see --help"


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
