"""Readers divide an epoch: no row is lost or doubled, and every step is full but the last."""

from itertools import pairwise

import pytest

from data_modules.shards.lanes import Lanes


@pytest.mark.parametrize("num_rows", [1, 3, 10, 31, 32, 33, 1000])
@pytest.mark.parametrize(("batch_size", "num_readers"), [(1, 8), (5, 8), (8, 3), (32, 8), (7, 7)])
def test_the_stretches_are_the_epoch_and_fill_each_step(num_rows: int, batch_size: int, num_readers: int) -> None:
    lanes = Lanes(num_rows, batch_size, num_readers)
    stretches = [lanes.stretch(lane) for lane in range(lanes.count)]
    assert stretches[0][0] == 0 and stretches[-1][1] == num_rows
    assert all(before[1] == after[0] for before, after in pairwise(stretches))
    assert all(end > begin for begin, end in stretches), "no reader is without rows"
    assert sum(lanes.share(lane) for lane in range(lanes.count)) == batch_size or lanes.num_full_steps == 0
    assert sum(lanes.rows_in_step(step) for step in range(lanes.num_steps)) == num_rows


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 9, 16])
def test_every_reader_is_read_by_someone_in_whole(world_size: int) -> None:
    lanes = Lanes(1000, 32, 4)
    taken = [place for rank in range(world_size) for place in lanes.of_process(rank, world_size)]
    for lane in range(4):
        sharing = [(place, of) for other, place, of in taken if other == lane]
        assert sorted(place for place, _ in sharing) == list(range(len(sharing)))
        assert {of for _, of in sharing} == {len(sharing)}
