"""Checks what a command line needs outside of itself: files, datasets, models, packages, hardware, accounts.

Each check yields a problem for whatever is missing. Nothing is downloaded or loaded: a hub name or a damaged file is
checked when it is loaded.
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

from data_modules.data_options import USER_TABLE
from data_modules.reading.files import is_address, is_glob
from faithkit.errors import UserError, nearest, shorten
from faithkit.files.model_folder import SIDECAR, find_folder
from faithkit.packages import missing
from faithkit.settings.config_files import EMBEDDED
from faithkit.weights.resolve import CONFIGS, LOCAL, resolve

TARGET = "_target_"
TABLES = {".parquet": "a Parquet file", ".xlsx": "an .xlsx workbook"}  # that need a package


def check_file(key: str, path: str | None) -> Iterator[UserError]:
    """Yields a problem for an input file that cannot be read."""
    if path is None:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        yield UserError(f"{key} is a folder, not a file", place=path, hint=f"set {key} to a file in it")
    elif not place.exists():
        yield UserError(f"{key}: no such file", place=path, hint=suggest_path(key, place))
    elif not os.access(place, os.R_OK):
        yield UserError(f"{key}: this file cannot be read", place=path, hint=f"chmod u+r {path}")
    elif place.suffix in TABLES:
        yield from missing(TABLES[place.suffix], f"{key}={path}")


def check_output_file(key: str, path: str | None) -> Iterator[UserError]:
    """Yields a problem for an output file that cannot be written."""
    if path is None:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        yield UserError(f"{key} is a folder", place=path, hint=f"name a file: {key}={path.rstrip('/')}/NAME")
    else:
        yield from check_output_folder(key, str(place.parent))


def check_output_folder(key: str, path: str | None) -> Iterator[UserError]:
    """Yields a problem for an output folder that cannot be made or written."""
    if path is None:
        return
    place, hint = Path(path), f"set {key} to another folder"
    for folder in (place, *place.parents):
        if folder.is_dir():
            if not os.access(folder, os.W_OK | os.X_OK):
                yield UserError(f"{key}: no permission to write", place=str(folder), hint=hint)
            return
        if os.path.lexists(folder):
            yield UserError(f"{key}: this is a file, not a folder", place=str(folder), hint=hint)
            return


def check_output_table(key: str, path: str | None, source: str) -> Iterator[UserError]:
    """Yields problems for an output table of an unknown format, or one that would replace its input."""
    from data_modules.reading.formats import WRITTEN

    if path is None:
        return
    place, rows = Path(path).expanduser(), Path(source).expanduser()
    if place.is_dir():
        return
    if place.suffix not in WRITTEN:
        found = f"has the unknown format {place.suffix!r}" if place.suffix else "names no format"
        hint = f"let it end in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}"
        yield UserError(f"{key} {found}", place=path, hint=hint)
    if place.suffix == ".parquet":
        yield from missing("a Parquet file", f"{key}={path}")
    if os.path.realpath(place) == os.path.realpath(rows) or (
        place.exists() and rows.exists() and place.samefile(rows)  # by another spelling, or a link of either kind
    ):
        yield UserError(f"{key} is the table that is scored", place=path, hint=f"choose another name for {key}")


def check_columns(
    path: str, columns: Mapping[str, str | None], by: str | Sequence[str] | None, encoding: str | None
) -> Iterator[UserError]:
    """Yields a problem for each column that a table lacks; a file that cannot be read is reported when it is read."""
    from data_modules.datasets.pair_columns import find_columns, has_field, list_columns
    from data_modules.datasets.pairs import with_all_columns
    from data_modules.reading.files import SAVE, saved_splits
    from data_modules.reading.rows import ReadReport
    from data_modules.reading.table_files import read_table

    if Path(path).is_dir():
        if not saved_splits(Path(path)):
            yield UserError("path is a folder, and no saved dataset", place=path, hint=SAVE)
        yield from missing("a saved dataset", "path")
    place = Path(path)
    if not place.is_file() or (place.suffix in TABLES and [*missing(TABLES[place.suffix])]):
        return
    try:
        first = next(iter(read_table(Path(path), ReadReport("skip", ""), encoding)), None)
    except (UserError, OSError):
        return
    if first is None:
        return
    row = with_all_columns(Path(path), first, encoding)
    try:
        find_columns(columns, row, keys="", without=("label", "spans"))
    except UserError as error:
        yield error
    for column in [by] if isinstance(by, str) else by or []:
        if not has_field(row.values, column):
            close = nearest(column, row.values, 1)
            hint = f"did you mean by={close[0]}?" if close else list_columns(row)
            yield UserError(f"by: there is no column {column!r}", place=path, hint=hint)


def read_kind(path: str) -> str | None:
    """Reads the kind of model that a folder's sidecar names; None if only loading can show it."""
    folder = find_folder(path)
    try:
        stored = json.loads((folder / SIDECAR).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kind = stored.get("kind") if isinstance(stored, dict) else None
    return kind if isinstance(kind, str) else None


def check_weights(key: str, name: str | None) -> Iterator[UserError]:
    """Yields a problem for weights that are no folder with a model, no local name and no hub name."""
    if name is None or name in LOCAL:
        return
    place = Path(name).expanduser()
    if any(len(os.fsencode(part)) > 255 for part in place.parts):
        hint = f"set {key} to a folder or a name"
        yield UserError(f"{key}: no file has so long a name", place=shorten(name), hint=hint)
    elif place.is_dir():
        folders = (place, place / "hf")  # a critic can be named by its run
        if not any((folder / config).exists() for folder in folders for config in CONFIGS):
            yield UserError(f"{key}: this folder holds no model", place=name, hint="name one with config.json: RUN/hf")
    elif not place.exists() and place.parent != Path() and place.parent.is_dir():
        yield UserError(f"{key}: no such folder", place=name, hint=suggest_path(key, place, "a folder"))
    else:
        try:
            resolve(name)
        except UserError as error:
            yield UserError(f"{key}: {error.problem}", hint=error.hint)


def check_precision(key: str, precision: str) -> Iterator[UserError]:
    """Yields a problem for a precision that needs a package which is not installed."""
    if precision == "onnx":
        yield from missing("precision=onnx", f"{key}=onnx")


def check_plots(key: str, plots: bool) -> Iterator[UserError]:
    """Yields a problem where plots are asked for without the package that draws them."""
    if plots:
        yield from missing("plots", f"{key}=true")


def check_class(key: str, target: str) -> Iterator[UserError]:
    """Yields a problem for a class of a package that is not installed; its module is not imported."""
    package = target.partition(".")[0]
    try:
        found = package in sys.modules or find_spec(package) is not None
    except ValueError:  # no name at all
        found = False
    if not found or "." not in target:
        problem = f"{key} is {shorten(target)}, and there is no such class"
        yield UserError(problem, hint="name it as package.module.Class, and install its package")


def check_prompts(block: str, ask: str | None, folder: str | None) -> Iterator[UserError]:
    """Yields a problem for a folder of prompts that lacks the prompt asked for, or has one that cannot be filled in."""
    if ask is None or folder is None:
        return
    from judge.prompt import read_prompts

    try:
        read_prompts(ask, folder)
    except UserError as error:
        yield UserError(f"{block}.prompts: {error.problem}", place=error.place, hint=error.hint)


def check_accelerator(key: str, accelerator: str) -> Iterator[UserError]:
    """Yields a problem for a GPU that this machine lacks; torch is asked where it is loaded already."""
    if accelerator not in ("gpu", "cuda"):
        return
    if "torch" in sys.modules:
        is_here = sys.modules["torch"].cuda.is_available()
    else:
        files = ("dev/nvidia[0-9]*", "dev/dxg", "dev/kfd")  # of CUDA, of Windows' subsystem, of ROCm
        is_here = any(any(Path("/").glob(pattern)) for pattern in files)
    if not is_here:
        yield UserError("there is no CUDA device", place=key, hint="use trainer=cpu")


def check_loggers(key: str, loggers: Any) -> Iterator[UserError]:
    """Yields problems for loggers without their package or account."""
    if any(one is not None for one in (loggers.csv, loggers.tensorboard, loggers.wandb)):
        yield from missing("a logger", key)
    if loggers.tensorboard is not None:
        yield from missing("logger=tensorboard", f"{key}=tensorboard")
    if loggers.wandb is not None:
        yield from missing("logger=wandb", f"{key}=wandb")
    if loggers.wandb is not None and not loggers.wandb.offline and not has_wandb_account():
        problem = f"{key}=wandb has no account: WANDB_API_KEY is not set, and `wandb login` was never run"
        yield UserError(problem, hint="logger.wandb.offline=true needs none; or run `wandb login`")


def has_wandb_account() -> bool:
    """Finds an account as `wandb.login` would, without the seconds that importing wandb takes."""
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = (
        os.environ.get("WANDB_BASE_URL", "").partition("://")[2].partition("/")[0].partition(":")[0] or "api.wandb.ai"
    )
    for name in (os.environ.get("NETRC", "~/.netrc"), "~/_netrc"):
        try:
            if netrc.netrc(Path(name).expanduser()).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue
    return False


def check_parts(data: Any) -> Iterator[UserError]:
    """Yields problems for the parts of a block `data`, those of a first training too."""
    stages = {"data.parts": data.parts} | ({"data.first.parts": data.first.parts} if data.first else {})
    for stage, parts in stages.items():
        for name, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts or ()):
            if part.path is None and part.dataset == USER_TABLE == data.name:
                yield missing_path("data", USER_TABLE)  # its part takes data.path
                continue
            yield from check_dataset(f"{stage}.{name}", part.dataset, part.path, data.split, part.model_extra)


def missing_path(key: str, name: str) -> UserError:
    """Gives the problem of a dataset without a path; the embedded corpus must not silently replace a user's table."""
    if name == USER_TABLE:
        return UserError(f"{key}.path is not set: {name} is a table of your own", hint=f"{key}.path=FILE")
    return UserError(f"{key}.path is not set", hint="name a folder or file, hub, or embedded")


def check_dataset(
    key: str, name: str | None, path: str | None, split: str | None = None, given: Mapping[str, Any] | None = None
) -> Iterator[UserError]:
    """Yields problems for an unknown dataset, an option that it refuses, or files that are missing.

    Args:
        name: None for a class of another package.
        given: The options of the dataset.
    """
    from data_modules.build import DATASETS, find_dataset

    options = {option: value for option, value in (given or {}).items() if option not in ("dataset", "path", "split")}
    if name is not None and name not in DATASETS and (guess := nearest(name, DATASETS, 1)):
        try:
            find_dataset(name)  # an installed package's
        except UserError:
            yield UserError(f"unknown dataset {name!r}", place=key, hint=f"did you mean {guess[0]}?")
            return
    if isinstance(options.get("teacher"), str):
        yield from check_weights(f"{key}.teacher", options["teacher"])
    if name is None:
        return  # a class of another package: found, and checked, when the data are built
    try:
        kind: Any = find_dataset(name)
        if name not in DATASETS:
            return  # another package's: it checks its options when it is built
        if kind.derived_from is not None:
            of = options.pop("of", {})
            if not isinstance(of, Mapping):
                yield UserError(f"{key}.of is {shorten(of)}", hint="use a block: {dataset: NAME, path: PATH}")
                return
            kind(of=find_dataset(kind.derived_from)(path=""), **options)
            inner = {name: value for name, value in of.items() if name not in ("embedded_rows", TARGET)}
            for field in ("dataset", "path"):
                if not isinstance(inner.get(field, ""), str):
                    hint = f"use the {field} of a corpus, as a text"
                    yield UserError(f"{key}.of.{field} is {shorten(inner[field])}", hint=hint)
                    return
            dataset = inner.get("dataset", None if TARGET in of else kind.derived_from)
            yield from check_dataset(f"{key}.of", dataset, inner.get("path", path), inner.get("split"), inner)
        elif kind.generated:
            kind(**options)
        elif (place := path or getattr(kind, "path", None)) is None:  # a dataset of the package has its path
            yield missing_path(key, name)
        else:
            yield from _check_rows(key, kind(path=place, **options), place, split)
    except UserError as error:
        yield error
    except (TypeError, ValueError) as error:
        problem = f"{key}: dataset {name} does not take {shorten(options, 120)}: {shorten(str(error), 120)[1:-1]}"
        yield UserError(problem, hint=f"see its options with --cfg job data={name}")


def _check_rows(key: str, source: Any, path: str, split: str | None) -> Iterator[UserError]:
    from data_modules.reading.dataset import resolve_split
    from data_modules.reading.files import HUB

    if path == EMBEDDED:
        return
    if path == HUB:
        try:
            source.check()  # refuses a dataset that is not there, without any access
        except UserError as error:
            problem = error.problem.replace("this dataset", source.name)
            yield UserError(problem, place=error.place, hint=error.hint)
        return
    place = Path(path).expanduser()
    if not place.exists() and not (source.files_stand_alone and (is_address(path) or is_glob(path))):
        field = "benchmark.path" if key.startswith("benchmark") else "data.path"
        field = f"{key}.path" if key.startswith("data.first") else field
        hint = suggest_path(field, place, "a folder or file")
        hint += (
            "; docs/reference/data.md has its download"
            if source.address and "docs/reference/data.md" not in hint
            else ""
        )
        yield UserError("no such file or folder", place=path, hint=hint)
    elif problems := [*missing(TABLES[place.suffix], key)] if place.suffix in TABLES else []:
        yield from problems
    elif not source.train_only:
        if split is not None:
            resolve_split(source, split)
        source.check()


def suggest_path(key: str, place: Path, wanted: str = "a file") -> str:
    """Writes the hint for a path that does not exist: the most similar one there, or what to name.

    A folder within another that this command names, such as `data_dir`, is missing there.
    """
    from hydra.core.hydra_config import HydraConfig

    typed = [one.partition("=") for one in HydraConfig.get().overrides.task] if HydraConfig.initialized() else []
    folders = {key.lstrip("+"): Path(value.strip("'\"")).expanduser() for key, _, value in typed if value}
    within = {len(folder.parts): key for key, folder in reversed(folders.items()) if folder in place.parents}
    if within:
        return f"{within[max(within)]}=DIR must hold {place.name}: docs/reference/data.md has downloads and folders"
    try:
        names = [neighbour.name for neighbour in islice(place.parent.iterdir(), 2000)]
    except (OSError, ValueError):
        names = []
    # A common ending makes no names alike: nothere.csv is no mistyped header.csv.
    stems = {Path(name).stem: name for name in sorted(names, key=lambda name: Path(name).suffix == place.suffix)}
    close = nearest(place.stem, stems, 1, alike=0.75)
    return f"did you mean {key}={place.parent / stems[close[0]]}?" if close else f"set {key} to {wanted} that exists"
