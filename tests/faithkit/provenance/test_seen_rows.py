"""Rows that a model has seen: always found again, rarely found wrongly, and small on the disk."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.provenance.row_keys import RowKeys
from faithkit.provenance.seen_rows import BITS, CHOSEN, KINDS, SEEN_ROWS_FILE, TRAINED, SeenRows, read_seen

KEYS = st.lists(st.integers(1, 2**64 - 1), max_size=30)


def keys_of(numbers: list[int]) -> RowKeys:
    return RowKeys(*(np.array(numbers, np.uint64) for _ in KINDS))


def random_keys(count: int, seed: int = 0) -> RowKeys:
    return RowKeys(*np.random.default_rng(seed).integers(1, 2**64 - 1, (3, count), dtype=np.uint64))


@given(first=st.lists(KEYS, max_size=3), second=KEYS)
def test_whatever_was_seen_is_found(first: list[list[int]], second: list[int], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("seen")
    whole = SeenRows.of({TRAINED: map(keys_of, first)}) | SeenRows.of({CHOSEN: [keys_of(second)]}, ["an old run"])
    whole.write(folder)
    found = read_seen(folder)
    assert found is not None and found.unknown_bases == ("an old run",)
    for use, numbers in ((TRAINED, list(chain(*first))), (CHOSEN, second)):
        shortened = {number >> (64 - BITS) for number in numbers}
        for kind in KINDS:
            assert found.contains(use, kind, np.array(numbers, np.uint64)).all()
            others = np.array([n for n in range(1 << 20, 1 << 64, 1 << 60) if n >> (64 - BITS) not in shortened])
            assert not found.contains(use, kind, others.astype(np.uint64)).any()


def test_an_empty_text_is_never_seen() -> None:
    seen = SeenRows.of({TRAINED: [keys_of([0, 5 << 40])]})
    assert seen.contains(TRAINED, "knowledge", np.array([0, 5 << 40], np.uint64)).tolist() == [False, True]


def test_a_file_takes_few_bytes_a_row(tmp_path: Path) -> None:
    SeenRows.of({TRAINED: [random_keys(200_000)]}).write(tmp_path)
    assert (
        tmp_path / SEEN_ROWS_FILE
    ).stat().st_size < 13 * 200_000  # three keys of 46 bits, of which 17.6 are not written


@pytest.mark.slow
def test_ten_million_rows_take_less_than_100_megabytes(tmp_path: Path) -> None:
    parts = (random_keys(500_000, seed) for seed in range(20))
    SeenRows.of({TRAINED: parts}).write(tmp_path)
    assert (tmp_path / SEEN_ROWS_FILE).stat().st_size < 100_000_000
    seen = read_seen(tmp_path)
    assert seen is not None and seen.contains(TRAINED, "row", random_keys(500_000, 7).row).all()
    assert seen.contains(TRAINED, "row", random_keys(1_000_000, 99).row).sum() <= 3  # 0.14 are expected


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-30], lambda b: b"{}", lambda b: bytes(len(b))])
def test_a_damaged_file_is_refused(tmp_path: Path, damage) -> None:
    SeenRows.of({TRAINED: [random_keys(100)]}).write(tmp_path)
    (tmp_path / SEEN_ROWS_FILE).write_bytes(damage((tmp_path / SEEN_ROWS_FILE).read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        read_seen(tmp_path)


def test_a_folder_without_the_file_tells_nothing(tmp_path: Path) -> None:
    assert read_seen(tmp_path) is None
