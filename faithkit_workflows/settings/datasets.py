"""Looks for the datasets that a command line names: their options, and their files."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_modules.reading.shards import is_address, is_glob
from faithkit.errors import UserError, nearest, shorten
from faithkit_workflows.settings.data import Data, blocks_of
from faithkit_workflows.settings.preflight import near_hint, weights_problems

TARGET = "_target_"
# Of one's own: the embedded corpus stands in for them where the path says it, and for nothing that was merely left out.
OWN = {"pairs": "a table of your own", "spans": "a file of your own"}


def part_problems(data: Data) -> Iterator[UserError]:
    """Parts of `data.parts` that cannot be read."""
    for key, part in blocks_of(data):
        if part.path is None and part.dataset in OWN and part.dataset == data.name:
            yield no_path("data", part.dataset)  # its part takes data.path
            continue
        named = {"dataset": part.dataset, "path": part.path, "split": data.split}
        yield from dataset_problems(key, {**(part.model_extra or {}), **named})


def no_path(key: str, name: str) -> UserError:
    """Says that a dataset of one's own has no path, instead of training or testing on another corpus."""
    return UserError(f"{key}.path is not set: {name} is {OWN[name]}", hint=f"{key}.path=FILE")


def benchmark_sets(block: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The datasets that a benchmark reads, as `dataset_problems` takes them."""
    if getattr(block, "target", None):
        return
    if getattr(block, "datasets", None):
        for name, one in block.datasets.items():
            # Several systems on one dataset have names of their own.
            dataset = (one.model_extra or {}).get("dataset", name)
            split = one.split or block.split
            yield f"benchmark.datasets.{name}", {"dataset": dataset, "path": one.path, "split": split}
    elif block.path is not None:
        name = block.dataset or block.name
        yield "benchmark", {**block.options, "dataset": name, "path": block.path, "split": block.split}


def dataset_problems(key: str, block: dict[str, Any]) -> Iterator[UserError]:
    """A dataset that there is not, an option that it refuses, or files that are not there.

    Args:
        block: `dataset`, `path`, `split`, and the dataset's own options.
    """
    from data_modules.reading.dataset import resolve_split
    from data_modules.reading.files import HUB
    from data_modules.registry import SOURCES, find_dataset
    from faithkit.embedded_name import EMBEDDED

    options = {name: value for name, value in block.items() if name not in ("dataset", "path", "split")}
    name, path, split = block["dataset"], block["path"], block["split"]
    if name is not None and name not in SOURCES and (guess := nearest(name, SOURCES, 1)):
        try:
            find_dataset(name)  # an installed package's
        except UserError:
            yield UserError(f"unknown dataset {name!r}", place=key, hint=f"did you mean {guess[0]}?")
            return
    if isinstance(options.get("teacher"), str):
        yield from weights_problems(f"{key}.teacher", options["teacher"])
    if name is None:
        return  # a class of another package: found, and checked, when the data are built
    try:
        kind = find_dataset(name)
        if name not in SOURCES:
            return  # another package's: it checks its options when it is built
        if kind.derived_from is not None:
            yield from _derived_problems(key, kind, path, options)
            return
        if kind.generated:
            kind(**options)
            return
        if path is None and name in OWN:
            yield no_path(key, name)
            return
        if path is None:
            yield UserError(f"{key}.path is not set", hint="name a folder or file, hub, or embedded")
            return
        source = kind(path=path, **options)
        if path in (EMBEDDED, HUB):
            return
        place = Path(path).expanduser()
        if not place.exists() and not (kind.files_stand_alone and (is_address(path) or is_glob(path))):
            field = "benchmark.path" if key.startswith("benchmark") else "data.path"
            field = f"{key}.path" if key.startswith("data.first") else field
            yield UserError("no such file or folder", place=path, hint=near_hint(field, place, "a folder or file"))
        elif not kind.train_only:
            if split is not None:
                resolve_split(source, split)
            source.check()
    except UserError as error:
        yield error
    except (TypeError, ValueError) as error:
        problem = f"{key}: dataset {name} does not take {shorten(options, 120)}: {shorten(str(error), 120)[1:-1]}"
        yield UserError(problem, hint=f"see its options with --cfg job data={name}")


def _derived_problems(key: str, kind: Any, path: str | None, options: dict[str, Any]) -> Iterator[UserError]:
    """A dataset made of another one that refuses its options, or that other one's faults."""
    from data_modules.registry import SOURCES

    of = options.pop("of", {})
    if not isinstance(of, Mapping):
        yield UserError(f"{key}.of is {shorten(of)}", hint="use a block: {dataset: NAME, path: PATH}")
        return
    kind(of=SOURCES[kind.derived_from](path=""), **options)
    original = {"dataset": None if TARGET in of else kind.derived_from, "path": path, "split": None}
    given = {name: value for name, value in of.items() if name not in ("embedded_rows", TARGET)}
    for name in ("dataset", "path"):
        if not isinstance(given.get(name, ""), str):
            yield UserError(f"{key}.of.{name} is {shorten(given[name])}", hint=f"use the {name} of a corpus, as a text")
            return
    yield from dataset_problems(f"{key}.of", {**original, **given})
