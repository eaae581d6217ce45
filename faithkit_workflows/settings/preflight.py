"""Looks for what a command line needs outside of itself: files, checkpoints, packages, hardware, accounts.

Nothing is downloaded or loaded here. What only the loading can tell (a hub's name, a damaged file) is left to it.
"""

import json
import netrc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from faithkit.detector import JUDGE, detector_kinds, kind_in_name
from faithkit.errors import UserError, nearest, shorten
from faithkit.files.model_folder import SIDECAR, find_folder
from faithkit.weights.resolve import CONFIGS, HUB_NAME, LOCAL, PATH_STARTS, resolve

DEVICE_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")  # of CUDA, of Windows' subsystem, of ROCm
WANDB_HOST = "api.wandb.ai"
LONGEST_NAME = 255  # bytes, on every usual file system


def file_problems(key: str, path: str | None) -> Iterator[UserError]:
    """A file to read that is not there, or is none."""
    if path is None:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        yield UserError(f"{key} is a folder, and a file is wanted", place=path, hint=f"set {key} to a file in it")
    elif not place.exists():
        yield UserError(f"{key}: no such file", place=path, hint=near_hint(key, place))
    elif not os.access(place, os.R_OK):
        yield UserError(f"{key}: this file cannot be read", place=path, hint=f"chmod u+r {path}")


def output_problems(key: str, path: str | None) -> Iterator[UserError]:
    """A file to write that cannot be: a folder has its name, or a file stands in its way."""
    if path is None:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        yield UserError(f"{key} is a folder", place=path, hint=f"name a file: {key}={path.rstrip('/')}/NAME")
    else:
        yield from run_dir_problems(str(place.parent), key)


def table_problems(key: str, path: str | None, source: str) -> Iterator[UserError]:
    """A table to write whose format is none that is known, or that would replace the rows that it is made of."""
    from data_modules.reading.formats import SUFFIXES

    if path is None:
        return
    place, rows = Path(path).expanduser(), Path(source).expanduser()
    if place.is_dir():
        return
    if place.suffix not in SUFFIXES:
        found = f"has the unknown format {place.suffix!r}" if place.suffix else "names no format"
        hint = f"let it end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        yield UserError(f"{key} {found}", place=path, hint=hint)
    if os.path.realpath(place) == os.path.realpath(rows) or (
        place.exists() and rows.exists() and place.samefile(rows)  # by another spelling, or a link of either kind
    ):
        yield UserError(f"{key} is the table that is scored", place=path, hint=f"choose another name for {key}")


def run_dir_problems(path: str | None, key: str = "run_dir") -> Iterator[UserError]:
    """A folder to write that cannot be made: a file has its name, or stands in its way, or its parent is closed."""
    if path is None:
        return
    place, elsewhere = Path(path), f"set {key} to another folder"
    for folder in (place, *place.parents):
        if folder.is_dir():
            if not os.access(folder, os.W_OK | os.X_OK):
                yield UserError(f"{key}: no permission to write", place=str(folder), hint=elsewhere)
            return
        if os.path.lexists(folder):
            yield UserError(f"{key}: this is a file, and a folder is wanted", place=str(folder), hint=elsewhere)
            return


def column_problems(
    path: str, columns: Mapping[str, str | None], by: str | Sequence[str] | None, encoding: str | None
) -> Iterator[UserError]:
    """Columns that a table does not have; a file that cannot be read says so when it is read."""
    from data_modules.datasets.pair_columns import find_columns, has_field, have
    from data_modules.datasets.pair_rows import PairReader, reader_of
    from data_modules.reading.rows import ReadReport
    from data_modules.reading.saved_datasets import SAVE, saved_splits
    from data_modules.reading.tables import read_table

    if Path(path).is_dir() and not saved_splits(Path(path)):
        yield UserError("path is a folder, and no saved dataset", place=path, hint=SAVE)
    if not Path(path).is_file():
        return
    try:
        first = next(iter(read_table(Path(path), ReadReport("skip", ""), encoding)), None)
    except (UserError, OSError):
        return
    if first is None:
        return
    known: Mapping[str, Any] = first.values
    try:
        _, known = reader_of(
            Path(path),
            first,
            lambda row: PairReader(find_columns(columns, row, keys="", without=("label", "spans"))),
            encoding,
        )
    except UserError as error:
        yield error
    for column in [by] if isinstance(by, str) else by or []:
        if not has_field(known, column):
            close = nearest(column, known, 1)
            hint = f"did you mean by={close[0]}?" if close else have(first)
            yield UserError(f"by: there is no column {column!r}", place=path, hint=hint)


def checkpoint_problems(key: str, path: str | None, *kinds: str) -> Iterator[UserError]:
    """A checkpoint that is not there, holds no model, or is of another kind than these."""
    if path is None or (JUDGE in kinds and kind_in_name(path)):
        return
    place = Path(path).expanduser()
    if not place.exists():
        beside = place.parent != Path() and place.parent.is_dir()  # runs/typo is no hub's name where runs/ is
        if path.startswith(PATH_STARTS) or not HUB_NAME.fullmatch(path) or beside:
            yield UserError(
                "no such run or folder", place=path, hint=near_hint(key, place, "a run's folder or a hub name")
            )
        return
    try:
        if "judge" in kinds and place.is_file() and place.suffix in (".yaml", ".yml"):
            from faithkit_workflows.settings.detector_file import read_detector_file

            read_detector_file(path)
            return
        kind = kind_of(path)
    except UserError as error:
        yield error
        return
    is_detector = JUDGE in kinds and kind in detector_kinds()
    if kind is not None and kind not in kinds and not is_detector:
        wanted = " or ".join(f"a {one}" for one in kinds)
        yield UserError(
            f"{key} is a {kind}, and {wanted} is wanted", place=path, hint=f"set {key} to a run of {wanted}"
        )


def kind_of(path: str) -> str | None:
    """The kind that a sidecar names; None where there is none, or one that only its reader can explain."""
    folder = find_folder(path)
    try:
        stored = json.loads((folder / SIDECAR).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kind = stored.get("kind") if isinstance(stored, dict) else None
    return kind if isinstance(kind, str) else None


def weights_problems(key: str, name: str | None) -> Iterator[UserError]:
    """Weights that are no folder with a model, no local name and no hub's name."""
    if name is None or name in LOCAL:
        return
    place = Path(name).expanduser()
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in place.parts):
        yield UserError(
            f"{key}: no file has so long a name", place=shorten(name), hint=f"set {key} to a folder or a name"
        )
        return
    if place.is_dir():
        inside = (place, place / "hf")  # a critic may be named by its run
        if not any((folder / config).exists() for folder in inside for config in CONFIGS):
            yield UserError(f"{key}: this folder holds no model", place=name, hint="name one with config.json: RUN/hf")
        return
    if not place.exists() and place.parent != Path() and place.parent.is_dir():
        yield UserError(f"{key}: no such folder", place=name, hint=near_hint(key, place, "a folder"))
        return
    try:
        resolve(name)
    except UserError as error:
        yield UserError(f"{key}: {error.problem}", hint=error.hint)


def package_problems(asked: str, package: str, extra: str) -> Iterator[UserError]:
    """An optional package that is not installed."""
    if package not in sys.modules and find_spec(package) is None:
        yield UserError(f"{asked} needs the package {package}", hint=f"pip install '.[{extra}]'")


def precision_problems(precision: str) -> Iterator[UserError]:
    """A precision whose package is not installed."""
    if precision == "onnx":
        yield from package_problems("precision=onnx", "onnxruntime", "onnx")


def class_problems(key: str, target: str) -> Iterator[UserError]:
    """A class of a package that is not installed; what its module holds is seen when it is imported."""
    package = target.partition(".")[0]
    try:
        found = package in sys.modules or find_spec(package) is not None
    except ValueError:  # no name at all
        found = False
    if not found or "." not in target:
        problem = f"{key} is {shorten(target)}, and there is no such class"
        yield UserError(problem, hint="name it as package.module.Class, and install its package")


def prompt_problems(block: str, ask: str | None, folder: str | None) -> Iterator[UserError]:
    """A folder of one's own prompts that lacks the one that is asked for, or has one that cannot be filled in."""
    if ask is None or folder is None:
        return
    from judge.prompt import read_prompt

    try:
        read_prompt(ask, folder)
    except UserError as error:
        yield UserError(f"{block}.prompts: {error.problem}", place=error.place, hint=error.hint)


def hardware_problems(accelerator: str) -> Iterator[UserError]:
    """A GPU that is asked for and is not there; torch is asked where it is loaded already."""
    if accelerator not in ("gpu", "cuda"):
        return
    if "torch" in sys.modules:
        here = sys.modules["torch"].cuda.is_available()
    else:
        here = any(any(Path("/").glob(pattern[1:])) for pattern in DEVICE_FILES)
    if not here:
        yield UserError("no CUDA device is here", place="trainer.accelerator", hint="use trainer=cpu")


def logger_problems(logger: Any) -> Iterator[UserError]:
    """A logger without its package or its account."""
    if logger.tensorboard is not None:
        yield from package_problems("logger=tensorboard", "tensorboard", "tensorboard")
    if logger.wandb is None or logger.wandb.offline or has_wandb_account():
        return
    problem = "logger=wandb has no account: WANDB_API_KEY is not set, and `wandb login` was never run"
    yield UserError(problem, hint="logger.wandb.offline=true needs none; or run `wandb login`")


def has_wandb_account() -> bool:
    """Tells it as `wandb.login` would, without the seconds that importing wandb takes; that one asks again later."""
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "").partition("://")[2].partition("/")[0].partition(":")[0] or WANDB_HOST
    for name in (os.environ.get("NETRC", "~/.netrc"), "~/_netrc"):
        try:
            if netrc.netrc(Path(name).expanduser()).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue
    return False


def near_hint(key: str, place: Path, wanted: str = "a file") -> str:
    """The hint for a path that is not there: its likely neighbour, or what is wanted."""
    try:
        names = [neighbour.name for neighbour in islice(place.parent.iterdir(), 2000)]
    except (OSError, ValueError):
        names = []
    close = nearest(place.name, names, 1)
    return f"did you mean {key}={place.parent / close[0]}?" if close else f"set {key} to {wanted} that exists"
