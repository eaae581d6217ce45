"""Operations on flat rows equal the same operations on lists."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.ragged import Ragged, constant_rows, join_rows, offsets_of, pad_rows, stack_rows, steps_of

Rows = list[list[int]]
ROW = st.lists(st.integers(-5, 99), max_size=6)
ROWS = st.lists(ROW, max_size=8)


def to_lists(rows: Ragged) -> Rows:
    return [rows.row(i).tolist() for i in range(len(rows))]


@given(rows=ROWS)
def test_lists_come_back_as_they_were(rows: Rows) -> None:
    ragged = Ragged.from_lists(rows)
    assert to_lists(ragged) == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@given(rows=st.lists(ROW, min_size=1, max_size=8), data=st.data())
def test_rows_are_taken_in_any_order_and_often(rows: Rows, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    taken = Ragged.from_lists(rows).take(np.array(indices, np.int64))
    assert to_lists(taken) == [rows[i] for i in indices]


@given(rows=st.lists(ROW, min_size=1, max_size=8), data=st.data())
def test_slices_are_those_of_lists(rows: Rows, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    starts = [data.draw(st.integers(0, len(rows[i]))) for i in indices]
    lengths = [data.draw(st.integers(0, len(rows[i]) - start)) for i, start in zip(indices, starts, strict=True)]
    sliced = Ragged.from_lists(rows).slice_rows(*(np.array(each, np.int64) for each in (indices, starts, lengths)))
    expected = zip(indices, starts, lengths, strict=True)
    assert to_lists(sliced) == [rows[i][start : start + length] for i, start, length in expected]


@pytest.mark.parametrize("length", [47, 48, 300])
def test_long_rows_are_copied_as_short_ones_are(length: int) -> None:
    rows = [list(range(place, place + length)) for place in (5, 500, 0, 70)]
    ragged = Ragged.from_lists(rows)
    assert to_lists(ragged.take(np.array([3, 1, 1]))) == [rows[3], rows[1], rows[1]]
    part = ragged.slice_rows(np.array([2, 0]), np.array([1, 0]), np.array([length - 1, length]))
    assert to_lists(part) == [rows[2][1:], rows[0]]


@given(rows=ROWS, data=st.data())
def test_rows_are_cut_at_their_end_where_they_are_too_long(rows: Rows, data: st.DataObject) -> None:
    longest = [data.draw(st.integers(0, 7)) for _ in rows]
    cut = Ragged.from_lists(rows).cut(np.array(longest, np.int64))
    assert to_lists(cut) == [row[:most] for row, most in zip(rows, longest, strict=True)]
    whole = Ragged.from_lists(rows)
    assert whole.cut(whole.lengths) is whole, "nothing is copied where nothing is cut"


@given(parts=st.lists(ROWS, min_size=1, max_size=4))
def test_stacked_rows_stand_below_each_other(parts: list[Rows]) -> None:
    assert to_lists(stack_rows([Ragged.from_lists(rows) for rows in parts])) == list(chain(*parts))


@given(rows=st.lists(st.tuples(ROW, ROW, ROW), max_size=8))
def test_joined_rows_stand_side_by_side(rows: list[tuple[list[int], ...]]) -> None:
    parts = [Ragged.from_lists([row[i] for row in rows]) for i in range(3)]
    assert to_lists(join_rows(parts)) == [[*chain(*row)] for row in rows]


@given(row=ROW, count=st.integers(0, 5))
def test_a_constant_row_is_repeated(row: list[int], count: int) -> None:
    assert to_lists(constant_rows(row, count)) == [row] * count


@given(rows=ROWS, fill=st.sampled_from([-100, 0, 7]))
def test_padding_stands_at_the_right(rows: Rows, fill: int) -> None:
    width = max(map(len, rows), default=0)
    padded = pad_rows(Ragged.from_lists(rows), fill)
    assert padded.tolist() == [row + [fill] * (width - len(row)) for row in rows]


@pytest.mark.parametrize(
    ("lengths", "offsets", "steps"), [([2, 0, 3], [0, 2, 2, 5], [0, 1, 0, 1, 2]), ([], [0], []), ([0], [0, 0], [])]
)
def test_offsets_and_steps_worked_out_by_hand(lengths: list[int], offsets: list[int], steps: list[int]) -> None:
    given = np.array(lengths, np.int64)
    assert offsets_of(given).tolist() == offsets and steps_of(given).tolist() == steps
