"""The command `faithkit`: every script by its name, from any folder.

faithkit train model=critic                         as `python train.py model=critic` in a checkout
faithkit evaluate benchmark=begin benchmark.path=FILE checkpoint=runs/...
faithkit COMMAND --help
"""

import runpy
import sys
from importlib.metadata import PackageNotFoundError, version

from faithkit.errors import choice_hint
from faithkit.packages import PAPERS, is_missing, missing_package

# Modules, by name: nothing heavy is imported before one of them is chosen.
COMMANDS = {
    "train": "train a model, then test its best checkpoint",
    "evaluate": "score a benchmark, with a model or from a predictions file",
    "generate": "answer dialogues with a trained generator",
    "construct": "build a benchmark: sample, annotate, induce, describe",
    "check": "check one answer: is it supported by its context, and which parts are not?",
    "score": "score pairs of knowledge and response in a file",
    "audit": "test a detector: accuracy, invariance, the changes that it finds, its faults",
    "compare": "compare detectors on your own rows: which is better, where do they disagree, what do they cost?",
    "serve": "answer requests over HTTP, with a page to try it",
    "mcp": "offer the check as a tool to agents",
    "hook": "check what a coding agent says when it stops, by what its tools returned",
    "chat": "talk to a generator in the terminal, with a verdict on each answer",
    "report": "compare runs: tables, paired tests, one page",
    "reproduce": "recompute tables of the papers, and compare them with the published ones",
    "models": "say which models there are, what each takes, and what is known of it",
    "export": "write a run's best model as a Hugging Face folder",
}
PACKAGES = {"reproduce": PAPERS}  # the package of a module; of the others faithkit_workflows


def usage() -> str:
    """The commands on one screen."""
    lines = ["usage: faithkit COMMAND [key=value ...]", ""]
    lines += [f"  {name:<10} {does}" for name, does in COMMANDS.items()]
    return "\n".join(
        [*lines, "", "`faithkit COMMAND --help` explains a command; `faithkit --version` prints the version."]
    )


def main() -> None:
    """Runs one command as `python -m faithkit_workflows.COMMAND` would, which processes that it starts rely on."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        print(usage())
    elif name == "--version":
        try:
            print(version("faithkit"))
        except PackageNotFoundError:
            print("faithkit is not installed: this is a checkout")
    elif name not in COMMANDS:
        print(f"error: faithkit has no command {name!r}\n  hint: {choice_hint(name, COMMANDS)}", file=sys.stderr)
        sys.exit(2)
    elif is_missing(package := PACKAGES.get(name, "faithkit_workflows")):
        print(f"error: {missing_package(f'faithkit {name}', package)}", file=sys.stderr)
        sys.exit(2)
    else:
        sys.argv = [f"faithkit {name}", *sys.argv[2:]]
        runpy.run_module(f"{package}.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
