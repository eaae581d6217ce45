"""From the `data` block of a configuration to sources and the DataModule."""

import logging
from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from common.home import cache_dir
from data_modules.data_module import DataModule
from data_modules.encode import Encoder
from data_modules.source import EMBEDDED, Source
from data_modules.sources import SOURCES

log = logging.getLogger("faithkit")
EMBEDDED_ROWS = {"train": 3000, "validation": 400, "test": 1000}  # of a dataset whose path is `embedded`


def build_source(dataset: str, path: str | None = None, **options: Any) -> Source:
    """A dataset by name; `path=embedded` has the embedded corpus written in that dataset's official layout.

    Raises:
        UserError: An unknown dataset, or an option that it does not have.
    """
    if dataset not in SOURCES:
        raise UserError(f"unknown dataset {dataset!r}", mend=f"use one of {', '.join(sorted(SOURCES))}")
    if path == EMBEDDED and dataset != EMBEDDED:
        path = write_embedded(dataset)
    if path is not None and dataset != EMBEDDED:
        options["path"] = path
    try:
        return SOURCES[dataset](**options)
    except TypeError as error:
        known = ", ".join(SOURCES[dataset].__dataclass_fields__)
        raise UserError(f"dataset {dataset}: {error}", mend=f"its options are {known}") from error


def write_embedded(dataset: str) -> str:
    """The folder of the embedded corpus in a dataset's official layout, written if it is not there yet."""
    from data_modules.embedded.corpus import VERSION
    from data_modules.embedded.layouts import WRITERS

    folder = cache_dir("embedded", f"{dataset}-{VERSION}-{sum(EMBEDDED_ROWS.values())}")
    log.info("%s: no path given, so the embedded corpus stands in, in its layout", dataset)
    done = folder / ".complete"
    if not done.exists():
        WRITERS[dataset](folder, EMBEDDED_ROWS, seed=0)
        done.touch()
    return str(folder)


def build_sources(parts: list[Mapping[str, Any]]) -> list[tuple[Source, float]]:
    """The sources of a mix with their weights."""
    sources = []
    for part in parts:
        options = dict(part)
        weight = options.pop("weight", 1.0)
        if not isinstance(weight, int | float) or not weight > 0:
            raise UserError(f"weight {weight!r} of {options.get('dataset')!r}", mend="use a number above 0")
        if "dataset" not in options:
            raise UserError(f"a part of data.parts names no dataset: {dict(part)}", mend="{dataset: NAME, path: PATH}")
        sources.append((build_source(**options), float(weight)))
    return sources


def build_data(data: Mapping[str, Any], encoder: Encoder, *, num_epochs: int, seed: int) -> DataModule:
    """The DataModule of a `data` block."""
    return DataModule(
        build_sources(data["parts"]),
        encoder,
        batch_size=data["batch_size"],
        max_tokens=data["max_tokens"],
        eval_max_tokens=data["eval_max_tokens"],
        num_epochs=num_epochs,
        num_workers=data["num_workers"],
        validation_fraction=data["validation_fraction"],
        test_fraction=data["test_fraction"],
        split=data["split"],
        num_rows=data["num_rows"],
        on_bad_row=data["on_bad_row"],
        seed=seed,
    )
