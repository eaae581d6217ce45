"""The start of every script: a quick `--help`, Hydra, and errors that a user can act on.

Nothing heavy is imported here: `--help` must answer before torch could load.
"""

import errno
import functools
import gc
import os
import re
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.signals import Interrupted

_HERE = Path(__file__).resolve().parent
# An installed package carries the configurations; in a checkout they stand beside it.
CONFIGS = _HERE / "configs" if (_HERE / "configs").is_dir() else _HERE.parent / "configs"
DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, signals.EXIT_CODE
COMMAND_VARIABLE = "FAITHKIT_COMMAND"  # tells the jobs of one sweep, in whichever process, that they belong together
SWEEP_VARIABLE = "FAITHKIT_SWEEP"  # names the sweep whose jobs are processes of their own

HELP_END = """
Any value of the configuration can be set: key=value, for a list key=[a,b]; `--cfg job` prints the whole of it.
  seed=1 run_dir=PATH resume=RUN debug=true      mean the same in every script
Exit codes: 0 done, 2 a mistake to correct (debug=true shows the traceback), 130 interrupted and resumable.
"""


def run_script(
    main: Callable[[Any], None],
    config_name: str,
    doc: str,
    groups: tuple[str, ...],
    settings: str,
    *,
    sweep: str | None = None,
) -> None:
    """Runs a script's `main` on its composed configuration, and ends the process with the documented exit code.

    Args:
        main: Gets the configuration; imports what is heavy inside.
        config_name: The script's entry file in configs/.
        doc: The script's docstring, shown by `--help`.
        groups: The configuration groups whose choices `--help` lists.
        settings: Where the kinds of the script's keys stand, as `package.module:Class`.
        sweep: What carries out the command line of a sweep, as `package.module:function`; None leaves it to Hydra.
    """
    signals.install()
    try:
        _run(main, config_name, doc, groups, settings, sweep)
        signals.check()  # an exception can be lost in a destructor; a command that was told to end has not ended well
    except (KeyboardInterrupt, Interrupted) as error:
        if int(os.environ.get("LOCAL_RANK") or 0) == 0:
            print(f"\ninterrupted{f': {error}' if str(error) else ''}", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _run(
    main: Callable[[Any], None],
    config_name: str,
    doc: str,
    groups: tuple[str, ...],
    settings: str,
    sweep: str | None,
) -> None:
    if any(argument in ("--help", "-h") for argument in sys.argv[1:]):
        _print_help(help_text(doc, groups, config_name))
        sys.exit(DONE)
    debug = any(re.fullmatch(r"\+*debug=(true|1|yes)", argument, re.IGNORECASE) for argument in sys.argv[1:])
    # Waiting threads sleep: where other programs share the cores, spinning ones made a step ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    gc.disable()  # until the work begins: looking for garbage took a tenth of a refusal
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # the error itself, instead of Hydra's own way of ending
    from faithkit.settings.command_line import CommandLine, say

    command = f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(4)}"
    line = CommandLine(CONFIGS, config_name, sys.argv[1:], settings)

    @functools.wraps(main)
    def explained(cfg: Any) -> None:
        try:
            say(line.check_job(cfg))
            gc.enable()
            with _own_environment({COMMAND_VARIABLE: command}):
                main(cfg)
        except Exception as error:  # ended here: Hydra would print lines of its own before handing it on
            _end(error, debug)

    try:
        if sweep is not None and line.is_sweep():
            gc.enable()
            resolve_name(sweep)(line)
            return
        say(line.check())
        if line.is_one_job():
            explained(line.compose_job())
        else:
            import hydra

            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(explained)()
    except Exception as error:
        _end(line.explain(error), debug)


@contextmanager
def _own_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for one job, and takes back all that it sets: a sweep runs the next one in the same process."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _end(error: Exception, debug: bool) -> NoReturn:
    """Ends the process: with an explanation where the mistake is the user's, else with the traceback."""
    message = explain(error)
    if message is None or debug:
        traceback.print_exc()
    if message is None:
        sys.exit(FAILED)
    print(f"error: {message}", file=sys.stderr)
    sys.exit(USER_ERROR)


def _print_help(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever reads it has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would say so again at its end


def help_text(doc: str, groups: tuple[str, ...], config_name: str) -> str:
    """Tells what the script does, its commands, the choices of each group as the folders have them, and its keys."""
    lines = [doc.strip(), "", *(["Choices:"] if groups else [])]
    for group in groups:
        lines.append(_wrap(f"  {group:<10} ", choices_of(group)))
    lines += ["", "Keys:"]
    for key, value, told in keys_of(config_name):
        lines.append(_wrap(f"  {f'{key}={value}':<26} ", told.split(" ")))
    return "\n".join(lines) + HELP_END.rstrip()


def keys_of(config_name: str, configs: Path = CONFIGS) -> list[tuple[str, str, str]]:
    """The keys of a script's entry file that a comment explains, with their defaults, but for those of its blocks."""
    found = re.findall(r"^(\w+): (\S+) # (.+)$", (configs / f"{config_name}.yaml").read_text(encoding="utf-8"), re.M)
    return [(key, "" if value == "???" else value, told) for key, value, told in found]


def choices_of(group: str, configs: Path = CONFIGS) -> list[str]:
    """The choices of a configuration group, as its folder has them."""
    return sorted(path.stem for path in (configs / group).glob("[!_]*.yaml"))


def _wrap(head: str, words: list[str], width: int = 100) -> str:
    lines, line = [], head
    for word in words:
        if len(line) + len(word) > width:
            lines.append(line.rstrip())
            line = " " * len(head)
        line += word + " "
    return "\n".join([*lines, line.rstrip()])


def explain(error: BaseException) -> str | None:
    """Explains an error to the user in at most five lines; None where the mistake is not the user's."""
    cause = error.__cause__
    if type(error).__module__.startswith("hydra") and isinstance(cause, UserError):
        error = cause  # raised by what Hydra was building
    kind = type(error).__name__
    if isinstance(error, UserError):
        return _at_most_five_lines(str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free some space; what is written already is whole"
        return _file_problem(f"no space left to write: {error.strerror}", error, hint)
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _file_problem(*_explain_permission(error))
    if kind == "OutOfMemoryError" or isinstance(error, MemoryError):
        return "out of memory\n  hint: lower data.batch_size or data.max_tokens, or model.max_length"
    if kind == "DistBackendError" or (kind == "RuntimeError" and "/gloo/" in str(error)):
        hint = "resume=RUN goes on, on fewer nodes as well; trainer.timeout_seconds says how long is waited"
        return f"another process of this command does not answer: its node is gone, or its wire is cut\n  hint: {hint}"
    if type(error).__module__.split(".")[0] in ("hydra", "omegaconf"):
        return _at_most_five_lines(_explain_override(error))
    return None


def _explain_permission(error: OSError) -> tuple[str, OSError, str]:
    """Tells a file that may not be read, or a folder that may not be entered, from one that may not be written."""
    path = Path(os.fsdecode(error.filename)).absolute() if error.filename else Path.cwd()
    closed = next(
        (folder for folder in reversed(path.parents) if folder.is_dir() and not os.access(folder, os.X_OK)), None
    )
    if closed is not None:
        return f"no permission to enter {closed}", error, f"ask its owner for it: chmod o+rx {closed}"
    if os.path.lexists(path) and not os.access(path, os.R_OK):
        return "no permission to read", error, f"ask its owner for it: chmod o+r {path}, or give another path"
    return "no permission to write", error, "set run_dir (or FAITHKIT_HOME) to another folder"


def _file_problem(problem: str, error: OSError, hint: str) -> str:
    place = f"\n  at: {error.filename}" if error.filename else ""
    return f"{problem}{place}\n  hint: {hint}"


def _explain_override(error: BaseException) -> str:
    # Hydra wraps: the innermost cause says what is wrong, the outermost which override it was.
    text = str(error).splitlines()[0]
    cause = error.__cause__
    while cause is not None:
        text = f"{text} ({str(cause).splitlines()[0]})"
        cause = cause.__cause__
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        return f"{missing[1]} is not set\n  hint: give {missing[1]}=VALUE on the command line"
    if choice := re.search(r"Could not find '(\w+)/(\w+)'", text):
        return f"{choice[1]} has no choice {choice[2]!r}\n  hint: use one of {', '.join(choices_of(choice[1]))}"
    return f"{shorten(text, 300)[1:-1]}\n  hint: see the choices with --help, and every key with --cfg job"


def _at_most_five_lines(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines[:5])
