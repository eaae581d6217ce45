"""Writers of the embedded corpus in the official layouts of datasets: each loader is exercised end to end."""

from collections.abc import Callable, Mapping
from pathlib import Path

from data_modules.embedded.corpus import VERSION
from data_modules.embedded.layouts.common import SPLITS, sizes
from data_modules.embedded.layouts.dialogue_corpora import (
    write_cmu_dog,
    write_faithdial,
    write_topical_chat,
    write_wow,
    write_wow_parlai,
)
from data_modules.embedded.layouts.judged import (
    write_audit,
    write_begin,
    write_diahalu,
    write_halludial,
    write_halueval,
)
from data_modules.embedded.layouts.nli_layout import write_conjnli, write_decode, write_dnli, write_mnli, write_snli
from data_modules.embedded.layouts.span_layout import write_pairs, write_ragtruth, write_xsum_tokens
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry

# Layout to writer(folder, num_rows, seed), which returns the folder. A dataset names its layout in `embedded_layout`.
WRITERS: dict[str, Callable[..., Path]] = {
    "faithdial": write_faithdial,
    "wow": write_wow_parlai,
    "wow_faithdial": write_wow,
    "cmu_dog": write_cmu_dog,
    "topical_chat": write_topical_chat,
    "begin": write_begin,
    "audit": write_audit,
    "mnli": write_mnli,
    "snli": write_snli,
    "conjnli": write_conjnli,
    "dnli": write_dnli,
    "decode": write_decode,
    "ragtruth": write_ragtruth,
    "xsum_tokens": write_xsum_tokens,
    "pairs": write_pairs,
    "halludial": write_halludial,
    "halueval": write_halueval,
    "diahalu": write_diahalu,
}
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

    return cache_entry(cache_dir("embedded") / f"{layout}-{VERSION}-{name}", build, str)
