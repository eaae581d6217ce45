"""Reads a command line: arguments, composition, types and conflicts, preflight checks; all before anything is made."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from faithkit.errors import UserError, join_problems, nearest, raise_problems, shorten
from faithkit.files.run_folder import SWEEP_FILE, script_of
from faithkit.settings.check import check_settings, find_problems
from faithkit.settings.overrides import compose_config, parse_overrides, repeated_keys, sweep_values

MAX_CHECKED_JOBS = 100  # of a sweep, before its first job runs: about ten seconds
# Hydra's options, which `hydra.main` carries out.
FLAGS = ("--multirun -m", "--run -r", "--resolve", "--version", "--hydra-help", "--shell-completion -sc")
VALUES = ("--package -p", "--config-path -cp", "--config-name -cn", "--config-dir -cd", "--experimental-rerun")
OPTION_HINT = "keys are set as key=value; see --help"


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
        """Hydra's options, and the overrides.

        Raises:
            UserError: An unknown option, or an override after an option.
        """

        def fail(message: str) -> NoReturn:  # argparse would print a usage of ten lines
            raise UserError(f"an option is wrong: {message}", hint=OPTION_HINT)

        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.error = fail  # type: ignore[method-assign]
        for names in FLAGS:
            parser.add_argument(*names.split(), action="store_true")
        for names in VALUES:
            parser.add_argument(*names.split())
        parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
        parser.add_argument("--info", "-i", nargs="?", const="all")
        parser.add_argument("overrides", nargs="*")
        options, others = parser.parse_known_args(list(self.arguments))
        for other in others:
            if not other.startswith("-"):
                hint = "write all key=value before the options"
                raise UserError(f"{shorten(other)} is after an option", hint=hint)
            known = [name for names in (*FLAGS, *VALUES, "--cfg --info") for name in names.split() if name[:2] == "--"]
            close = nearest(other, known, 1)
            raise UserError(
                f"unknown option {shorten(other)}", hint=f"did you mean {close[0]}?" if close else OPTION_HINT
            )
        return options

    @property
    def overrides(self) -> list[str]:
        """The keys and choices as they were typed, without options."""
        return list(self.options.overrides)

    def _has_only(self, *options: str) -> bool:
        """Reports whether these are the only options, and no override is about Hydra itself."""
        given = {name for name, value in vars(self.options).items() if value and name != "overrides"}
        return given == set(options) and not any(text.lstrip("+~").startswith("hydra") for text in self.overrides)

    def is_sweep(self) -> bool:
        """Reports whether it is `-m` with keys and choices alone; Hydra itself carries out other sweeps."""
        return self._has_only("multirun") and not any("glob(" in text for text in self.overrides)

    def is_one_job(self) -> bool:
        """Reports whether it is keys and choices alone."""
        return self._has_only()

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
        if problems:
            raise join_problems([*problems, *self._value_problems(cfg)])
        return cfg

    def _value_problems(self, cfg: Any) -> list[UserError]:
        """Finds wrong values; none where a value is missing that others need."""
        try:
            if OmegaConf.missing_keys(cfg):
                return []
            config: Any = OmegaConf.to_container(cfg, resolve=True)
        except OmegaConfBaseException:
            return []
        return find_problems(config, resolve_name(self.settings))

    def check(self, cfg: Any) -> Iterator[str]:
        """Checks the values of a composed configuration; yields notes on keys that have no effect.

        Raises:
            UserError: With every problem.
        """
        overrides, _ = parse_overrides(self.overrides)
        yield from repeated_keys(overrides)
        if cfg.get("resume") is not None:
            self._check_resumed(cfg.resume)  # the run has a configuration, which is checked when it is opened
            return
        missing = sorted(OmegaConf.missing_keys(cfg))
        try:
            config: Any = OmegaConf.to_container(cfg, resolve=True)
        except InterpolationToMissingValueError:
            raise_problems(UserError(f"{key} is not set", hint=f"give {key}=VALUE") for key in missing)
            raise
        settings: Any = check_settings(_without_missing(config), resolve_name(self.settings))
        given = {override.key_or_group for override in overrides}
        yield from settings.notes(given)
        yield from _unused_scales(given, cfg)

    def check_sweep(self, use: Callable[[Any], None] = lambda cfg: None) -> None:
        """Checks each value of a sweep once, with the first values of the other keys.

        Args:
            use: Gets the configurations in which the values are tried.

        Raises:
            UserError: Of the first job that is wrong, with every problem.
        """
        overrides, problems = parse_overrides(self.overrides)
        raise_problems(problems)
        values = [_values_of(override) for override in overrides]
        first = [some[0] for some in values]
        jobs = [
            first,
            *([*first[:at], value, *first[at + 1 :]] for at, some in enumerate(values) for value in some[1:]),
        ]
        for arguments in jobs[:MAX_CHECKED_JOBS]:
            job = replace(self, arguments=arguments)
            cfg = job.compose()
            for _ in job.check(cfg):
                pass
            use(cfg)

    def check_for_hydra(self) -> None:
        """Checks a command for `hydra.main`; where it names a folder of configurations, its syntax alone."""
        overrides, problems = parse_overrides(self.overrides)
        raise_problems(problems)
        if self.options.config_dir is not None or self.options.config_path is not None:
            return
        if self.options.multirun and self.options.cfg is None:
            self.check_sweep()
        else:
            own = [one for one in overrides if not (one.key_or_group.startswith("hydra") or one.is_sweep_override())]
            raise_problems(compose_config(self.configs, self.config_name, own)[1])

    def _check_resumed(self, resume: Any) -> None:
        """Refuses to resume what is no run, or another script's."""
        if not isinstance(resume, str) or "\0" in resume or not resume:
            raise UserError(f"resume is {shorten(resume)}", hint="set resume to a run's folder")
        config = Path(resume) / "config.yaml"
        if not config.is_file():
            hint = "set resume to a run's folder"
            if (Path(resume) / SWEEP_FILE).is_file():
                hint = f"this is a sweep, which goes on with: faithkit {self.config_name} -m resume={resume}"
            raise UserError("nothing to resume: no config.yaml", place=resume, hint=hint)
        text = config.read_text(encoding="utf-8", errors="replace")[:1_000_000]
        keys = re.findall(r'^"?(\w+)"?:', text, re.MULTILINE) or re.findall(r'^ {1,4}"(\w+)":', text, re.MULTILINE)
        made_by = script_of(keys, self.config_name)
        if made_by != self.config_name:
            problem = f"this run is one of {made_by}, and cannot be resumed by {self.config_name}"
            raise UserError(problem, place=resume, hint=f"faithkit {made_by} resume={resume}")


def _values_of(override: Override) -> list[str]:
    """Lists the overrides that a sweep over one key consists of."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    head = str(override.input_line).partition("=")[0]
    return [f"{head}={value}" for value in sweep_values(override)]


def _without_missing(value: Any) -> Any:
    """Leaves out keys that are not set, whose value is `???`."""
    if isinstance(value, dict):
        return {key: _without_missing(item) for key, item in value.items() if item != "???"}
    return [_without_missing(item) for item in value] if isinstance(value, list) else value


def _unused_scales(given: Iterable[str], cfg: Any) -> Iterator[str]:
    scales = sorted(key for key in given if key.startswith("scale."))
    used = OmegaConf.to_yaml(cfg) if scales else ""
    for key in scales:
        if f"${{{key}}}" not in used and f"${{{key}." not in used:
            yield f"{key} has no effect: no key here takes its value"


def print_notes(notes: Iterator[str]) -> None:
    """Prints notes; makes the checks that they come from, also where there are none."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
