"""Folders and files that command lines name, and what a script answers to a command line, without starting it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faithkit.cli import explain
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS


def schema_of(script: str) -> str:
    """Names the schema of a script's configuration, as the script itself does."""
    modules = {"train": "training", "evaluate": "evaluation", "construct": "construction"}
    module = modules.get(script, "reporting" if script in ("report", "export") else "prediction")
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


def command_line(script: str, arguments: Sequence[str]) -> CommandLine:
    """The command line of a script."""
    return CommandLine(CONFIGS, script, arguments, schema_of(script))


def refusal(script: str, arguments: Sequence[str], notes: list[str] | None = None) -> str | None:
    """The explanation that a script refuses a command line with; None where it would begin its work.

    Args:
        notes: Gets the notes on a command line that is accepted.
    """
    line = command_line(script, arguments)
    try:
        if line.is_one_job():
            found = list(line.check(line.compose()))
            if notes is not None:
                notes += found
        else:
            line.check_for_hydra()
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        return explained
    return None
