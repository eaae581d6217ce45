"""Folders and files that command lines name, and what a script answers to a command line, without starting it."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser

from faithkit.cli import CONFIGS, explain
from faithkit.settings.command_line import CommandLine
from faithkit.settings.overrides import explained_lists
from tests.running import compose


def schema_of(script: str) -> str:
    """Names the schema of a script's configuration, as the script itself does."""
    module = {"evaluate": "evaluation", "construct": "construction", "report": "report", "export": "exporting"}.get(
        script, "scripts"
    )
    return f"faithkit_workflows.settings.{module}:{script.title()}Settings"


@dataclass(frozen=True, slots=True)
class Places:
    """The runs and files that the placeholders of a command line stand for."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> "Places":
        """Writes runs without weights, which only their reader could miss, and small files."""
        for kind in ("critic", "tagger", "generator", "judge"):
            (root / kind / "hf").mkdir(parents=True)
            (root / kind / "hf" / "config.json").write_text("{}")
            (root / kind / "hf" / "faithkit.json").write_text(json.dumps({"kind": kind}))
        (root / "unfinished" / "checkpoints").mkdir(parents=True)
        (root / "unfinished" / "checkpoints" / "last.ckpt").touch()
        for name, key in (("trained", "model"), ("generated", "decoding")):
            (root / name).mkdir()
            (root / name / "config.yaml").write_text(f"seed: 0\n{key}:\n  name: x\n")
        (root / "folder").mkdir()
        (root / "file").write_text('{"id": "a", "text": "b"}\n')
        (root / "table").with_suffix(".csv").write_text("knowledge,response,model\na,b,c\n")
        return cls(root)

    def fill(self, arguments: Sequence[str]) -> list[str]:
        """Puts the paths in the place of `{name}`."""
        filled = list(arguments)
        names = ("critic", "tagger", "generator", "judge", "unfinished", "trained", "generated", "folder", "file")
        for name in names:
            filled = [argument.replace(f"{{{name}}}", str(self.root / name)) for argument in filled]
        return [argument.replace("{table}", str(self.root / "table.csv")) for argument in filled]

    def contents(self) -> list[Path]:
        """All files and folders."""
        return sorted(self.root.rglob("*"))


@cache
def _composed(script: str, groups: tuple[str, ...]) -> Any:
    return compose(script, *groups)


def composed(script: str, arguments: Sequence[str]) -> Any:
    """The configuration of a command line; the choices are composed once, and the values set as Hydra sets them."""
    parsed = OverridesParser.create().parse_overrides(list(arguments))
    is_group = [(CONFIGS / override.key_or_group).is_dir() for override in parsed]
    groups = tuple(o.input_line for o, group in zip(parsed, is_group, strict=True) if group)
    cfg = deepcopy(_composed(script, groups))
    values = [o for o, group in zip(parsed, is_group, strict=True) if not group]
    with explained_lists():
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
    return cfg


def refusal(script: str, arguments: Sequence[str], notes: list[str] | None = None) -> str | None:
    """The explanation that a script refuses a command line with; None where it would begin its work.

    The steps are those of `faithkit.cli.run_script` up to the script's own.
    """
    notes = [] if notes is None else notes  # what is said of an accepted one
    line = CommandLine(CONFIGS, script, arguments, schema_of(script))
    try:
        notes += line.check()
        if "-m" not in arguments and "--cfg" not in arguments:
            notes += line.check_job(composed(script, arguments))
    except Exception as error:
        explained = explain(line.explain(error))
        if explained is None:
            raise
        return explained
    return None
