"""Writers of the embedded corpus in the official layouts of datasets: each loader is exercised end to end."""

from collections.abc import Mapping
from pathlib import Path

from data_modules.embedded.corpus import VERSION
from data_modules.embedded.layouts import dialogue_corpora, judged, span_layout
from data_modules.embedded.layouts.common import SPLITS, sizes
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry

# Layout to writer(folder, num_rows, seed), which returns the folder. A dataset names its layout in `embedded_layout`.
WRITERS = dialogue_corpora.WRITERS | judged.WRITERS | span_layout.WRITERS
LAYOUTS_VERSION = 1  # raised when a layout holds other rows of the same corpus
EMBEDDED_ROWS = {"train": 3000, "validation": 400, "test": 1000}  # examples of a split, where a block names no others


def written_layout(layout: str, num_rows: Mapping[str, int] | None = None) -> str:
    """Returns the folder of the embedded corpus in a layout, written if it is not there yet, or damaged.

    Raises:
        UserError: There is no such layout.
    """
    if layout not in WRITERS:
        raise UserError(f"the embedded corpus has no layout {layout!r}", hint=f"use one of {', '.join(WRITERS)}")
    rows = sizes(num_rows or EMBEDDED_ROWS)
    # A split that is not asked for counts 0, so that no two requests share a folder.
    name = "-".join(str(rows.get(split, 0)) for split in SPLITS)

    def build(folder: Path) -> None:
        WRITERS[layout](folder, rows, seed=0)

    return cache_entry(cache_dir("embedded") / f"{layout}-{VERSION}.{LAYOUTS_VERSION}-{name}", build, str)
