"""A run's folder: the paths of everything that a run writes, its log, its lock and its configuration.

The lock lets one command at a time work in the folder. The kernel ends it with its process.

config.yaml is plain data, written and read so that nothing in it can act on its reader: a folder may come from anyone.
It holds texts, numbers, lists and maps; there are no interpolations, tags, aliases or repeated keys, and its size is
checked before it is read. A literal `${` in a text is written as OmegaConf escapes it, `\\${`.
"""

import errno
import fcntl
import logging
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import disk_errors, make_folder, write_text
from faithkit.settings.config_files import SCRIPTS

RUN_DIR_VARIABLE = "FAITHKIT_RUN_DIR"  # the folder that the first process of a run chose, for the others
# What a command leaves before it has produced anything: settings, log, refused rows, and the curves of no step.
LEFTOVERS = (
    *("config.yaml", "rejects.jsonl", "csv", "tensorboard", "wandb", "wandb.json"),
    *(f"{script}.log" for script in SCRIPTS.values()),
)
FILE_ONLY = {"file_only": True}  # as `extra` of a log message: what the terminal shows otherwise
log = logging.getLogger("faithkit")
NAME = ".lock"  # stays in the folder: deleting a lock file lets a third process lock another one of the same name
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_held: set[int] = set()
MAX_BYTES, MAX_NODES, MAX_DEPTH = 1_000_000, 10_000, 24  # ours has about 4,000 bytes, 250 nodes and a depth of 6
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
_HINT = "put the config.yaml back as the run wrote it, or begin again in another run_dir"
_MARKED = re.compile(r"(\\*)\$\{")
_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.inf)$|\.nan$",
    re.IGNORECASE,
)


class RunFolder:
    """Paths within a run's folder.

    Args:
        whole: The folder of the whole run, where this is that of one of its stages.
        script: The command that made it, after which its log is named.
        may_change: The keys, or patterns of them, that resuming it may change.
    """

    def __init__(
        self, path: str | Path, whole: Path | None = None, script: str = "train", may_change: Sequence[str] = ()
    ):
        self.path = Path(path)
        self.whole = whole or self.path
        self.script, self.may_change = script, may_change
        self.config = self.path / "config.yaml"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.last = self.checkpoints / "last.ckpt"  # a file, or a folder of parts
        self.previous = self.checkpoints / "previous.ckpt"  # the last.ckpt before the newest
        self.hf = self.path / "hf"
        self.adapter = self.path / "adapter"  # where adapters alone were trained: these, without the base
        self.metrics = self.path / "metrics.json"
        self.predictions = self.path / "predictions"

    def stage(self, name: str) -> "RunFolder":
        """Gives the folder of a stage within this run."""
        return RunFolder(self.path / name, whole=self.whole, script=self.script, may_change=self.may_change)

    @property
    def log(self) -> Path:
        return self.path / f"{self.script}.log"

    def has_work(self) -> bool:
        """Reports whether a command has produced anything here: a checkpoint, predictions, a result."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder) / name
                parts = path.relative_to(self.path).parts
                if not any(part in LEFTOVERS or part.startswith(".") for part in parts) and path.stat().st_size:
                    return True
        return False


def resume_hint(script: str, run: Path) -> str:
    """Writes the command that resumes a run, quoted for a shell."""
    return f"go on with: {shlex.join(['faithkit', script, f'resume={run}'])}"


def process_rank() -> int:
    """Reads this process's number among those of the run, before torch is loaded."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("LOCAL_RANK") or 0)


class _LogFile(logging.FileHandler):
    """A log file that a full disk cuts off silently: what writes the results will report the full disk, once."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # the rest of its buffer is lost too
            super().close()


def log_to(path: Path) -> None:
    """Sends log messages to the run's log file and, without times, to the terminal; those in FILE_ONLY to the file."""
    make_folder(path.parent)
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    with disk_errors(path):
        file = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    terminal.addFilter(lambda record: not hasattr(record, "file_only"))
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(file)
    if process_rank() == 0:
        log.addHandler(terminal)


@contextmanager
def run_lock(folder: Path, key: str = "run_dir") -> Iterator[None]:
    """Holds the lock of a run's folder.

    Args:
        key: The setting that names it, for the error.

    Raises:
        UserError: Another process holds it; it is named.
    """
    path = folder / NAME
    with disk_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            hint = f"wait for it to end or stop it, or choose another {key}"
            raise UserError(f"{holder} is working in this folder", place=str(folder), hint=hint) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning("%s: this file system has no locks: let one command at a time work in the folder", folder)
        else:
            with suppress(OSError):  # a full disk: the lock holds without the name of its holder
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Reports whether a command works in a folder now; the lock is tried only where its last holder may still run."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        holder = os.pread(handle, 200, 0).decode(errors="replace").split()
        if _has_ended(holder):  # a lock that is tried is held for a moment, in which another command would be refused
            return False
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _has_ended(holder: list[str]) -> bool:
    match holder:
        case ["process", number, "on", host] if host == socket.gethostname() and number.isdecimal():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                return True
            except (OSError, OverflowError):
                return False
    return False


def _close_inherited() -> None:
    """Closes the handles that a forked process inherits: a loader's worker must not keep the lock of a dead parent."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_inherited)


def _resolvers() -> dict[Any, Any]:
    """Selects which unquoted words are no text: null, booleans and numbers; 1e-4 is a number, unlike in YAML 1.1."""
    known = ("null", "bool", "int")
    kept = {
        first: [(tag, words) for tag, words in rules if tag.rpartition(":")[2] in known]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        kept[first] = [*kept.get(first, []), ("tag:yaml.org,2002:float", _FLOAT)]
    return kept


# The parser in C is ten times as fast as that in Python, and there in every wheel of PyYAML.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _resolvers()


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _resolvers()  # the same: what the loader would not read as text is quoted

    def ignore_aliases(self, data: Any) -> bool:
        return True  # a value in two places is written twice

    def text(self, data: str) -> yaml.ScalarNode:
        """Writes a text; one with a line break that is none for most programs is quoted, or it would become a space."""
        style = '"' if _BREAKS.search(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.text)


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Writes a configuration of plain values, all of them resolved."""
    plain = _escaped(dict(config))
    write_text(path, yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return _MARKED.sub(lambda found: f"{2 * found[1]}\\${{", value)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value


def read_config(path: Path) -> dict[str, Any]:
    """Reads a configuration that a run's folder holds.

    Raises:
        UserError: It is not plain data, too large, damaged, or not there.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        hint = "set resume to a run's folder"
        raise UserError("nothing to resume: no config.yaml", place=str(path.parent), hint=hint) from error
    if len(data) > MAX_BYTES:
        _refuse(f"larger than {MAX_BYTES:,} bytes: no run writes such a configuration", str(path))
    if not data.strip(b"\x00 \t\r\n"):
        _refuse(f"empty: {len(data):,} bytes, and nothing in them", str(path))
    try:
        text = data.decode("utf-8-sig")
        depth = nodes = 0
        for event in yaml.parse(text, Loader=_Loader):  # before anything is built: a bomb is refused where it begins
            place = f"{path}, line {event.start_mark.line + 1}"
            if getattr(event, "anchor", None):
                _refuse(f"an alias: {shorten(event.anchor)}; a run's configuration is plain data", place)
            if getattr(event, "tag", None):
                _refuse(f"a tag: {shorten(event.tag)}; a run's configuration is plain data", place)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            nodes += isinstance(event, yaml.NodeEvent)
            if depth > MAX_DEPTH or nodes > MAX_NODES:
                _refuse(f"more than {MAX_NODES:,} values" if nodes > MAX_NODES else _TOO_DEEP, place)
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8: {error.reason} at byte {error.start:,}", str(path))
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        too_deep = "nesting depth" in str(error.problem)  # PyYAML's limit, which can be reached before the one here
        problem = _TOO_DEEP if too_deep else f"not YAML: {error.problem}"
        _refuse(problem, f"{path}{line}")
    except yaml.YAMLError as error:
        _refuse(f"not YAML: {shorten(str(error))}", str(path))
    if not isinstance(node, yaml.MappingNode):
        _refuse("not a configuration: it should be a map of keys to values", str(path))
    return _value(node, "", path)


def _refuse(problem: str, place: str) -> NoReturn:
    raise UserError(problem, place=place, hint=_HINT)


def _value(node: yaml.Node, key: str, path: Path) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{key}[{number}]", path) for number, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, key, path)
    found: dict[Any, Any] = {}
    for name_node, item in node.value:
        name = _scalar(name_node, key, path) if isinstance(name_node, yaml.ScalarNode) else None
        place = f"{path}, line {name_node.start_mark.line + 1}"
        if type(name) not in (str, int):
            _refuse(f"a key that is not a text: {shorten(getattr(name_node, 'value', None))}", place)
        if name in found:
            _refuse(f"the key {shorten(name)} is repeated", place)
        found[name] = _value(item, f"{key}.{name}" if key else str(name), path)
    return found


def _scalar(node: yaml.Node, key: str, path: Path) -> Any:
    place = f"{path}, line {node.start_mark.line + 1}"
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, OverflowError, KeyError) as error:  # a whole number of thousands of digits
        _refuse(f"{key} cannot be read: {shorten(str(error))}", place)
    if not isinstance(value, str):
        return value
    if any(len(found[1]) % 2 == 0 for found in _MARKED.finditer(value)):
        _refuse(f"{key} is an interpolation, {shorten(value)}: a run's configuration holds values alone", place)
    return _MARKED.sub(lambda found: f"{found[1][: len(found[1]) // 2]}${{", value)
