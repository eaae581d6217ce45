"""Writers of the embedded corpus in the official layouts of datasets: each loader is exercised end to end."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from data_modules.datasets.lettucedetect import CODE_SETS, PROSE_SETS
from data_modules.embedded.corpus import VERSION
from data_modules.embedded.layouts.common import (
    SPLITS,
    Layout,
    NumRows,
    sizes,
    write_csv,
    write_json,
    write_json_line,
    write_tsv,
)
from data_modules.embedded.layouts.dialogue_corpora import (
    faithdial_rows,
    parlai_rows,
    wow_rows,
    write_cmu_dog,
    write_topical_chat,
)
from data_modules.embedded.layouts.judged import (
    BEGIN_HEADER,
    begin_rows,
    conjnli_rows,
    decode_rows,
    dnli_rows,
    mnli_rows,
    snli_rows,
    write_audit,
    write_diahalu,
    write_halludial,
    write_halueval,
)
from data_modules.embedded.layouts.span_layout import (
    PAIRS_HEADER,
    pairs_rows,
    write_aggrefact,
    write_faithbench,
    write_lettucedetect,
    write_psiloqa,
    write_ragtruth,
    write_ragtruth_plus_plus,
    write_summedits,
    write_true,
    write_wice,
    write_xsum_tokens,
)
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.files.jsonl import write_jsonl


def _files(*, train: str = "", validation: str = "", test: str = "") -> Mapping[str, list[str]]:
    return {"train": train.split(), "validation": validation.split(), "test": test.split()}


def _write_mnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes MultiNLI. It has no labelled test set: a test size is taken for its matched and mismatched dev files."""
    dev = "multinli_1.0_dev_matched.jsonl multinli_1.0_dev_mismatched.jsonl"
    layout = Layout(_files(train="multinli_1.0_train.jsonl", validation=dev), mnli_rows, write_jsonl)
    wanted = sizes(num_rows)
    return layout(folder, {**wanted, "validation": max(wanted.get(name, 0) for name in ("validation", "test"))}, seed)


# Layout to writer(folder, num_rows, seed), which returns the folder. A dataset names its layout in `embedded_layout`.
WRITERS: dict[str, Callable[..., Path]] = {
    "faithdial": Layout(
        _files(train="train.json", validation="valid.json", test="test.json"), faithdial_rows, write_json
    ),
    "wow": Layout(
        _files(
            train="train.json",
            validation="valid_random_split.json valid_topic_split.json",
            test="test_random_split.json test_topic_split.json",
        ),
        parlai_rows,
        write_json,
    ),
    "wow_faithdial": Layout(
        _files(train="wow_train.json", validation="wow_valid.json", test="wow_test.json"), wow_rows, write_json
    ),
    "cmu_dog": write_cmu_dog,
    "topical_chat": write_topical_chat,
    "begin": Layout(
        _files(
            validation="wow/begin_dev_wow.tsv cmu-dog/begin_dev_cmu.tsv topicalchat/begin_dev_tc.tsv",
            test="wow/begin_test_wow.tsv cmu-dog/begin_test_cmu.tsv topicalchat/begin_test_tc.tsv",
        ),
        begin_rows,
        partial(write_tsv, header=BEGIN_HEADER, end="\r\n"),
    ),
    "audit": write_audit,
    "mnli": _write_mnli,
    "snli": Layout(
        _files(train="snli_1.0_train.jsonl", validation="snli_1.0_dev.jsonl", test="snli_1.0_test.jsonl"),
        snli_rows,
        write_jsonl,
    ),
    "conjnli": Layout(
        _files(train="adversarial_train_15k.tsv", validation="conj_dev.tsv", test="conj_test.tsv"),
        conjnli_rows,
        partial(write_tsv, header=("Premise", "Hypothesis", "Label"), bom=True),
    ),
    "dnli": Layout(
        _files(train="dialogue_nli_train.jsonl", validation="dialogue_nli_dev.jsonl", test="dialogue_nli_test.jsonl"),
        dnli_rows,
        write_json_line,
    ),
    "decode": Layout(_files(train="train.jsonl", validation="dev.jsonl", test="test.jsonl"), decode_rows, write_jsonl),
    "ragtruth": write_ragtruth,
    "xsum_tokens": write_xsum_tokens,
    "pairs": Layout(
        _files(train="train.csv", validation="validation.csv", test="test.csv"),
        pairs_rows,
        partial(write_csv, header=PAIRS_HEADER),
    ),
    "halludial": write_halludial,
    "halueval": write_halueval,
    "diahalu": write_diahalu,
    "aggrefact": write_aggrefact,
    "true_sets": write_true,
    "psiloqa": write_psiloqa,
    "faithbench": write_faithbench,
    "ragtruth_plus_plus": write_ragtruth_plus_plus,
    "summedits": write_summedits,
    "wice": write_wice,
    "lettucedetect_code": partial(write_lettucedetect, sets=CODE_SETS),
    "lettucedetect_prose": partial(write_lettucedetect, sets=PROSE_SETS),
}
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
