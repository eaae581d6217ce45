"""Checks a command line, the cheapest first: arguments, choices, every job of a sweep, then the values."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn

from faithkit.errors import UserError, nearest, shorten

if TYPE_CHECKING:
    from faithkit.settings.overrides import Overrides

MOST_JOBS = 100  # of a sweep whose values are tried before the first job runs: about ten seconds
# Which script made a run, by a key of its configuration that no other script has.
MADE_BY = {
    "pipeline": "construct",
    "model": "train",
    "benchmark": "evaluate",
    "columns": "score",
    "decoding": "generate",
}


@dataclass(slots=True)
class CommandLine:
    """A script's command line.

    Args:
        configs: The folder of the configurations.
        config_name: The script's entry file there.
        arguments: What was typed behind the script's name.
        settings: Where the `ScriptSettings` of the script stand, as `package.module:Class`; imported when needed.
    """

    configs: Path
    config_name: str
    arguments: Sequence[str]
    settings: str

    def check(self, each: Callable[[Any], None] = lambda cfg: None) -> Iterator[str]:
        """Checks what needs no composition, and every value of a sweep; yields notes on what has no effect.

        Args:
            each: Gets the configurations in which the values of a sweep are tried.

        Raises:
            UserError: With every problem.
        """
        from faithkit.settings.check import refuse
        from faithkit.settings.overrides import Overrides

        options, texts = self._options()
        overrides = Overrides(self.configs, texts, closed=options.config_dir is None and options.config_path is None)
        if overrides.problems:
            refuse(self._every_problem(overrides))
        yield from overrides.twice()
        if options.multirun and options.cfg is None:
            self._check_sweep(overrides.parsed, each)

    def is_sweep(self) -> bool:
        """Tells whether it is `-m` with keys and choices alone; `hydra...` and glob() leave a sweep to Hydra."""
        options, texts = self._options()
        asked = {name for name, value in vars(options).items() if value and name != "overrides"}
        return asked == {"multirun"} and not any(
            text.lstrip("+~").startswith("hydra") or "glob(" in text for text in texts
        )

    def overrides(self) -> list[str]:
        """Gives the keys and choices as they were typed, without options."""
        return self._options()[1]

    def is_one_job(self) -> bool:
        """Tells whether it is keys and choices alone: no option of Hydra's, such as a sweep, and no setting of it."""
        options, texts = self._options()
        asked = {name for name, value in vars(options).items() if value and name != "overrides"}
        return not asked and not any(text.lstrip("+~").startswith("hydra") for text in texts)

    def compose_job(self) -> Any:
        """Composes the configuration once; `hydra.main` composes it twice, first to see whether it is a sweep."""
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import open_dict

        from faithkit.settings.overrides import compose

        cfg = compose(self.configs, self.config_name, self._options()[1])
        HydraConfig.instance().set_config(cfg)  # for who asks which overrides this command has
        with open_dict(cfg):
            del cfg["hydra"]
        return cfg

    def check_job(self, cfg: Any) -> Iterator[str]:
        """Checks the values of a composed configuration; yields notes on keys that are given and have no effect."""
        from omegaconf import OmegaConf
        from omegaconf.errors import InterpolationToMissingValueError

        from faithkit.settings.check import check_settings, refuse
        from faithkit.settings.overrides import Overrides

        if cfg.get("resume") is not None:
            self._check_resumed(cfg.resume)  # its own configuration counts: it is checked when the run is opened
            return
        missing = sorted(OmegaConf.missing_keys(cfg))
        try:
            config: Any = OmegaConf.to_container(cfg, resolve=True)
        except InterpolationToMissingValueError:
            refuse(UserError(f"{key} is not set", hint=f"give {key}=VALUE") for key in missing)
            raise
        schema: Any = resolve_name(self.settings)
        settings: Any = check_settings(_without(config, missing), schema)
        given = Overrides(self.configs, self._options()[1], closed=False).given()
        yield from settings.notes(given)
        if scaled := sorted(key for key in given if key.startswith("scale.")):
            used = OmegaConf.to_yaml(cfg)
            for key in scaled:
                if f"${{{key}}}" not in used and f"${{{key}." not in used:
                    yield f"{key} has no effect: nothing here takes its value"

    def explain(self, error: Exception) -> Exception:
        """Explains why a configuration could not be composed by all overrides that are wrong; else gives the error."""
        from faithkit.settings.check import join_problems
        from faithkit.settings.overrides import Overrides

        if type(error).__module__.split(".")[0] not in ("hydra", "omegaconf"):
            return error
        overrides = Overrides(self.configs, self._options()[1], closed=False)
        problems = self._every_problem(overrides)
        return join_problems(problems) if problems else error

    def _every_problem(self, overrides: "Overrides") -> list[UserError]:
        """The overrides that are wrong, and the values that the others come to."""
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        from faithkit.settings.check import find_problems

        cfg, choices = overrides.compose_choices(self.config_name)
        problems = [*overrides.problems, *overrides.unknown_keys(cfg, choices), *overrides.blocks_for_lists(cfg)]
        try:
            overrides.set_values(cfg)
            missing = OmegaConf.missing_keys(cfg)
            config: Any = OmegaConf.to_container(cfg, resolve=True)
        except (HydraException, OmegaConfBaseException):
            return problems  # they say enough
        if missing or not problems:
            return problems
        return [*problems, *find_problems(config, resolve_name(self.settings))]

    def _options(self) -> tuple[argparse.Namespace, list[str]]:
        """Hydra's options, and the overrides.

        Raises:
            UserError: An option that there is not, or an override on the wrong side of one.
        """
        from hydra._internal.utils import get_args_parser

        def wrong(message: str) -> NoReturn:  # argparse would print its usage of ten lines and end
            raise UserError(f"an option is wrong: {message}", hint="keys are set as key=value; --help tells more")

        parser = get_args_parser()
        parser.error = wrong  # type: ignore[method-assign]
        options, others = parser.parse_known_args(list(self.arguments))
        for other in others:
            if other.startswith("-"):
                known = [name for action in parser._actions for name in action.option_strings if name[:2] == "--"]
                close = nearest(other, known, 1)
                hint = f"did you mean {close[0]}?" if close else "keys are set as key=value; --help tells more"
                raise UserError(f"unknown option {shorten(other)}", hint=hint)
            raise UserError(f"{shorten(other)} stands behind an option", hint="write all key=value before the options")
        return options, options.overrides

    def _check_sweep(self, parsed: Sequence[Any], each: Callable[[Any], None]) -> None:
        """Tries each value of a sweep once, beside the first values of the others, before the first job runs."""
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        from faithkit.settings.overrides import compose_with_choices

        values = [_values(override) for override in parsed]
        first = [own[0] for own in values]
        lines = [first]
        for place, own in enumerate(values):
            lines += [[*first[:place], value, *first[place + 1 :]] for value in own[1:]]
        for texts in lines[:MOST_JOBS]:
            job = CommandLine(self.configs, self.config_name, texts, self.settings)
            try:
                cfg = compose_with_choices(self.configs, self.config_name, texts)[0]
            except (HydraException, OmegaConfBaseException) as error:
                raise job.explain(error) from error
            for _ in job.check_job(cfg):
                pass
            each(cfg)

    def _check_resumed(self, resume: Any) -> None:
        """Refuses to resume what is no run, or another script's."""
        if not isinstance(resume, str) or "\0" in resume or not resume:
            raise UserError(f"resume is {shorten(resume)}", hint="set resume to a run's folder")
        config = Path(resume) / "config.yaml"
        if not config.is_file():
            from faithkit.files.run_folder import SWEEP_FILE

            hint = "set resume to a run's folder"
            if (Path(resume) / SWEEP_FILE).is_file():
                hint = f"this is a sweep, which goes on with: faithkit {self.config_name} -m resume={resume}"
            raise UserError("nothing to resume: no config.yaml", place=resume, hint=hint)
        text = config.read_text(encoding="utf-8", errors="replace")[:1_000_000]
        keys = re.findall(r'^"?(\w+)"?:', text, re.MULTILINE) or re.findall(r'^ {1,4}"(\w+)":', text, re.MULTILINE)
        made_by = next((script for key, script in MADE_BY.items() if key in keys), self.config_name)
        if made_by != self.config_name:
            problem = f"this run is one of {made_by}, and cannot be resumed by {self.config_name}"
            raise UserError(problem, place=resume, hint=f"faithkit {made_by} resume={resume}")


def _values(override: Any) -> list[str]:
    """The overrides that a sweep over one key comes to."""
    if not override.is_sweep_override():
        return [override.input_line]
    head = override.input_line.partition("=")[0]
    from faithkit.settings.overrides import values_of_sweep

    return [f"{head}={value}" for value in values_of_sweep(override)]


def _without(config: dict[str, Any], missing: Sequence[str]) -> dict[str, Any]:
    """Takes out the keys that are not set, which else would stand there as `???`."""
    for key in missing:
        *path, last = key.split(".")
        block: Any = config
        for part in path:
            block = block[int(part) if isinstance(block, list) else part]
        if isinstance(block, dict):
            del block[last]
    return config


def say(notes: Iterator[str]) -> None:
    """Prints notes; where nothing is noted this still makes the checks that they come from."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
