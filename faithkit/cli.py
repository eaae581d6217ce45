"""The start of every script: a quick `--help`, the checked configuration, and errors that a user can act on.

Nothing heavy is imported here: `--help` must answer before torch could load.
"""

import argparse
import errno
import gc
import os
import re
import secrets
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from faithkit import signals
from faithkit.arguments import ALIASES
from faithkit.errors import MAX_LINES, LimitExceeded, UserError, nearest, shorten
from faithkit.packages import missing_name, missing_package, require
from faithkit.settings.config_files import CONFIGS, choices_of, top_keys
from faithkit.signals import Interrupted

DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, signals.EXIT_CODE
BROKEN_PIPE = 141  # as shells report it: 128 + SIGPIPE
# Columns of tables by the words of the other commands.
COLUMN_ALIASES = dict(ALIASES)
COLUMN_ALIAS = re.compile(rf"^((?:\w+\.)*columns)\.({'|'.join(COLUMN_ALIASES)})=")
SWEEP_VARIABLE = "FAITHKIT_SWEEP"  # names the sweep that a job belongs to

HELP_END = """
Any value of the configuration can be set: key=value or --key value, for a list key=[a,b]; `--cfg job` prints all.
  seed=1 run_dir=PATH resume=RUN debug=true      mean the same in every script
Exit codes: 0 done, 1 a requested limit is exceeded, 2 a mistake to correct (debug=true shows the traceback),
130 interrupted and resumable.
"""


def run_command(main: Callable[[list[str]], int | None], doc: str | None) -> NoReturn:
    """Runs a command that reads its own arguments, and ends the process with the documented exit code.

    Args:
        main: Gets the arguments; returns the exit code, None for 0.
        doc: The command's docstring, shown by `--help`.
    """
    arguments = sys.argv[1:]
    with _interruptible():
        if any(argument in ("--help", "-h") for argument in arguments):
            print((doc or "").strip())
            sys.exit(DONE)
        try:
            sys.exit(main(arguments))
        except Exception as error:
            _end(error, debug=False)


class CommandParser(argparse.ArgumentParser):
    """Reads the options of a command as `--name VALUE` and as `name=VALUE`, and explains wrong ones."""

    def __init__(self, command: str):
        super().__init__(prog=command, add_help=False, allow_abbrev=False)
        self._is_flag: dict[str, bool] = {}

    def add_argument(self, *names: str, **options: Any) -> Any:
        """Adds an argument, as argparse does."""
        action = super().add_argument(*names, **options)
        self._is_flag |= dict.fromkeys(action.option_strings, action.nargs == 0)
        return action

    def parse_args(self, arguments: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Reads a command line.

        Raises:
            UserError: An option is unknown, or its value is missing or wrong.
        """
        end = list(arguments).index("--") if "--" in arguments else len(arguments)
        given = []
        for argument in arguments[:end]:
            name, is_pair, value = argument.partition("=")
            is_flag = self._is_flag.get(f"--{name}") if is_pair else None
            if is_flag is None:
                given.append(argument)
            elif not is_flag:
                given.append(f"--{argument}")
            elif value not in ("true", "false"):
                raise UserError(f"{name} is {shorten(value)}", hint=f"{name}=true or {name}=false")
            elif value == "true":
                given.append(f"--{name}")
        options, others = self.parse_known_args([*given, *arguments[end:]])
        if others:
            close = nearest(others[0].partition("=")[0], list(self._is_flag), 1) if others[0].startswith("-") else []
            hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help"
            what = (
                "unknown option" if others[0].startswith("-") else "quote a text of several words; unexpected argument"
            )
            raise UserError(f"{what} {shorten(others[0])}", hint=hint)
        return options

    def error(self, message: str) -> NoReturn:
        """Explains a wrong option."""
        raise UserError(message, hint=f"{self.prog} --help")


def as_keys(arguments: Sequence[str], config_name: str) -> list[str]:
    """Writes options that are keys of a script, `--checkpoint X` or `--checkpoint=X`, as `checkpoint=X`.

    Raises:
        UserError: A value is missing.
    """
    keys, flags = top_keys(config_name)
    written, given = list[str](), iter(arguments)
    for argument in given:
        option = re.fullmatch(r"--([\w.-]+)(=.*)?", argument, re.DOTALL)
        key = option[1].replace("-", "_") if option else ""
        if option is None or key.partition(".")[0] not in keys:
            written.append(argument)
        elif option[2]:
            written.append(f"{key}{option[2]}")
        elif key in flags:
            written.append(f"{key}=true")
        elif (value := next(given, "--")).startswith("--"):
            raise UserError(f"--{option[1]} has no value", hint=f"--{option[1]} VALUE, or {key}=VALUE")
        else:
            written.append(f"{key}={value}")
    return [COLUMN_ALIAS.sub(lambda found: f"{found[1]}.{COLUMN_ALIASES[found[2]]}=", one) for one in written]


def as_override(arguments: Sequence[str], key: str = "path") -> list[str]:
    """Takes the first argument that is no `key=value` for the data, which Hydra knows as path=DATA, or as another key.

    Only other keys are before it: behind an option it could be the option's value.
    """
    for place, argument in enumerate(arguments):
        name, is_pair, _ = argument.partition("=")
        if is_pair and "/" not in name:  # no key has a slash, and day=1/ is a usual folder
            continue
        if argument.startswith("-"):
            break
        quoted = argument.replace("\\", "\\\\").replace("'", "\\'")
        return [*arguments[:place], f"{key}='{quoted}'", *arguments[place + 1 :]]
    return list(arguments)


def run_script(
    main: Callable[[Any], None],
    config_name: str,
    doc: str,
    groups: tuple[str, ...],
    settings: str,
    *,
    sweep: str | None = None,
    prepare: Callable[[Sequence[str]], list[str]] = list,
) -> None:
    """Runs a script's `main` on its checked configuration, and ends the process with the documented exit code.

    Args:
        main: Gets the configuration; imports what is heavy inside.
        config_name: The script's entry file in configs/.
        doc: The script's docstring, shown by `--help`.
        groups: The configuration groups whose choices `--help` lists.
        settings: The script's `ScriptSettings`, as `package.module:Class`.
        sweep: The function that carries out a sweep, as `package.module:function`; without one, the jobs of a sweep
            run one after the other in this process.
        prepare: Changes the arguments, once their options are written as keys.
    """
    with _interruptible():
        if any(argument in ("--help", "-h") for argument in sys.argv[1:]):
            with suppress(BrokenPipeError):
                print(help_text(doc, groups, config_name), flush=True)
            _is_reader_gone()
            sys.exit(DONE)
        try:
            sys.argv[1:] = prepare(as_keys(sys.argv[1:], config_name))
        except UserError as error:
            _end(error, debug=False)
        _run(main, config_name, settings, sweep)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends an interrupted process with the documented exit code."""
    signals.install()
    try:
        yield
        signals.check()  # an exception can be lost in a destructor; an interrupted command must not exit with 0
    except (KeyboardInterrupt, Interrupted) as error:
        if int(os.environ.get("LOCAL_RANK") or 0) == 0:
            print(f"\ninterrupted{f': {error}' if str(error) else ''}", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _run(main: Callable[[Any], None], config_name: str, settings: str, sweep: str | None) -> None:
    debug = any(re.fullmatch(r"\+*debug=(true|1|yes)", argument, re.IGNORECASE) for argument in sys.argv[1:])
    # Waiting threads sleep: where other programs share the cores, spinning ones made a step ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    gc.disable()  # until the work begins: collecting garbage took a tenth of a refusal
    from faithkit.settings.command_line import CommandLine

    line = CommandLine(CONFIGS, config_name, sys.argv[1:], settings)

    def run_job(job: CommandLine, environment: Mapping[str, str]) -> None:
        cfg = job.compose()
        for note in job.check(cfg):
            print(f"note: {note}", file=sys.stderr)
        gc.enable()
        slow = {"FAITHKIT_FAST": "0"} if cfg.get("fast") is False else {}  # also for the processes that it starts
        with _environment({**environment, **slow}):
            main(cfg)

    try:
        if line.options.cfg:
            from omegaconf import OmegaConf

            print(OmegaConf.to_yaml(line.compose(), resolve=line.options.resolve), end="")
            return
        require(f"faithkit {config_name}")
        if not line.options.multirun:
            run_job(line, {})
        elif sweep is not None:
            gc.enable()
            resolve_name(sweep)(line)
        else:
            line.check_sweep()
            command = f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(4)}"
            for job in line.jobs():
                run_job(job, {SWEEP_VARIABLE: command})
    except LimitExceeded as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(FAILED)
    except Exception as error:
        _end(error, debug)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for one job, and restores the environment after it: a sweep can run several in one process."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _is_reader_gone() -> bool:
    """Whether standard output has no reader, as after `| head -1`; what is left to print is then dropped."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    is_gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if is_gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would report it again at exit
    return is_gone


def _end(error: Exception, debug: bool) -> NoReturn:
    """Ends the process: with an explanation where the mistake is the user's, else with the traceback."""
    if isinstance(error, BrokenPipeError) and _is_reader_gone():
        print("stopped: the reader of standard output has ended", file=sys.stderr)
        sys.exit(BROKEN_PIPE)
    message = explain(error)
    if message is None or debug:
        traceback.print_exc()
    if message is None:
        sys.exit(FAILED)
    print(f"error: {message}", file=sys.stderr)
    sys.exit(USER_ERROR)


def help_text(doc: str, groups: tuple[str, ...], config_name: str) -> str:
    """Writes the help of a script: what it does, its commands, the choices of each group, and its keys."""
    lines = [doc.strip(), "", *(["Choices:"] if groups else [])]
    for group in groups:
        lines.append(_wrap(f"  {group:<10} ", choices_of(group)))
    lines += ["", "Keys:"]
    text = (CONFIGS / f"{config_name}.yaml").read_text(encoding="utf-8")
    for key, default, explanation in re.findall(r"^(\w+): (\S+) # (.+)$", text, re.MULTILINE):
        value = "" if default == "???" else default
        lines.append(_wrap(f"  {f'{key}={value}':<26} ", explanation.split(" ")))
    return "\n".join(lines) + HELP_END.rstrip()


def _wrap(head: str, words: list[str]) -> str:
    lines, line = [], head
    for word in words:
        if len(line) + len(word) > 100:
            lines.append(line.rstrip())
            line = " " * len(head)
        line += word + " "
    return "\n".join([*lines, line.rstrip()])


def explain(error: BaseException) -> str | None:
    """Explains an error to the user in at most five lines; None if the mistake is not the user's."""
    kind = type(error).__name__
    if isinstance(error, UserError):
        return "\n".join(str(error).splitlines()[:MAX_LINES])
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free some space; what is written already is whole"
        return _file_problem(f"no space left to write: {error.strerror}", error, hint)
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        path = Path(os.fsdecode(error.filename)).absolute() if error.filename else Path.cwd()
        folders = (folder for folder in reversed(path.parents) if folder.is_dir() and not os.access(folder, os.X_OK))
        if (closed := next(folders, None)) is not None:
            hint = f"ask its owner for it: chmod o+rx {closed}"
            return _file_problem(f"no permission to enter {closed}", error, hint)
        if os.path.lexists(path) and not os.access(path, os.R_OK):
            hint = f"ask its owner for it: chmod o+r {path}, or give another path"
            return _file_problem("no permission to read", error, hint)
        return _file_problem("no permission to write", error, "set run_dir (or FAITHKIT_HOME) to another folder")
    if isinstance(error, ModuleNotFoundError) and (package := missing_name(error)):
        return str(missing_package("this command", package))
    if kind == "OutOfMemoryError" or isinstance(error, MemoryError):
        return "out of memory\n  hint: lower data.batch_size or data.max_tokens, or model.max_length"
    if kind == "DistBackendError" or (kind == "RuntimeError" and "/gloo/" in str(error)):
        hint = "resume=RUN goes on, on fewer nodes as well; trainer.timeout_seconds sets the timeout"
        return f"lost connection to another process of this command, or to its node\n  hint: {hint}"
    if type(error).__module__.split(".")[0] not in ("hydra", "omegaconf"):
        return None
    # Hydra wraps errors: the innermost cause is what is wrong, the outermost names the override.
    text, cause = str(error).splitlines()[0], error.__cause__
    while cause is not None:
        text = f"{text} ({str(cause).splitlines()[0]})"
        cause = cause.__cause__
    explained = f"{shorten(text, 300)[1:-1]}\n  hint: see the choices with --help, and every key with --cfg job"
    if choice := re.search(r"Could not find '(\w+)/(\w+)'", text):
        explained = f"{choice[1]} has no choice {choice[2]!r}\n  hint: use one of {', '.join(choices_of(choice[1]))}"
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        explained = f"{missing[1]} is not set\n  hint: give {missing[1]}=VALUE on the command line"
    return "\n".join(explained.splitlines()[:MAX_LINES])


def _file_problem(problem: str, error: OSError, hint: str) -> str:
    place = f"\n  at: {error.filename}" if error.filename else ""
    return f"{problem}{place}\n  hint: {hint}"
