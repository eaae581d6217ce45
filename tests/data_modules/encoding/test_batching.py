"""Every example once an epoch, whatever the processes; similar lengths together; any step can be the first."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.batching import PADDING_ROW, BatchSampler, Part
from faithkit.fast import plan_batches

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=80).map(lambda values: np.array(values, np.int32))


def sampler(lengths: np.ndarray, **options: object) -> BatchSampler:
    defaults = {"batch_size": 4, "max_tokens": None, "shuffle": True, "num_epochs": 2, "seed": 3}
    return BatchSampler(lengths, [Part(np.arange(len(lengths)))], **{**defaults, **options})  # type: ignore[arg-type]


@given(
    lengths=LENGTHS,
    batch_size=st.integers(1, 9),
    max_tokens=st.integers(1, 600),
    shuffle=st.booleans(),
    two=st.booleans(),
)
def test_a_plan_holds_every_example_once_within_both_limits(
    lengths: np.ndarray, batch_size: int, max_tokens: int, shuffle: bool, two: bool
) -> None:
    rng = np.random.default_rng(0) if shuffle else None
    batches = plan_batches(lengths, batch_size, max_tokens, rng, lengths[::-1] if two else None)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens


@given(lengths=LENGTHS, world_size=st.integers(1, 5))
def test_processes_share_every_batch_without_loss_or_doubling(lengths: np.ndarray, world_size: int) -> None:
    whole = list(sampler(lengths))
    shares = [list(sampler(lengths, rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert all(len(share) == len(whole) for share in shares), "every process takes every step"
    for step, (batch, num_rows) in enumerate(whole):
        rows = [row for share in shares for row in share[step][0].tolist() if row != PADDING_ROW]
        assert sorted(rows) == sorted(batch.tolist()) and num_rows == len(batch)


@given(
    families=st.lists(st.integers(1, 6), min_size=1, max_size=25),
    batch_size=st.integers(1, 9),
    max_tokens=st.none() | st.integers(1, 900),
    world_size=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_a_family_shares_a_batch_as_far_as_both_limits_let_it(
    families: list[int], batch_size: int, max_tokens: int | None, world_size: int, shuffle: bool
) -> None:
    rng = np.random.default_rng(len(families))
    family = rng.permutation(np.repeat(np.arange(len(families), dtype=np.uint64), families))
    lengths = (family * 7 % 90 + 10 + rng.integers(0, 5, len(family)).astype(np.uint64)).astype(np.int32)
    options = {"batch_size": batch_size, "max_tokens": max_tokens, "shuffle": shuffle, "family": family}
    whole = [batch for batch, _ in sampler(lengths, num_epochs=1, **options)]
    assert sorted(np.concatenate(whole).tolist()) == list(range(len(lengths)))
    assert all(len(batch) <= batch_size for batch in whole)
    for number, size in enumerate(families):
        batches = [batch for batch in whole if number in family[batch]]
        if size <= batch_size and max_tokens is None:
            assert len(batches) == 1
        for batch in batches:
            places = np.flatnonzero(family[batch] == number)
            assert np.array_equal(places, np.arange(places[0], places[-1] + 1)), "one behind the other"
            assert max_tokens is None or len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens
    shares = [list(sampler(lengths, num_epochs=1, rank=r, world_size=world_size, **options)) for r in range(world_size)]
    for step, batch in enumerate(whole):
        rows = [row for share in shares for row in share[step][0].tolist() if row != PADDING_ROW]
        assert rows == batch.tolist()


@given(lengths=LENGTHS, start=st.integers(0, 60))
def test_a_pass_can_begin_at_any_step(lengths: np.ndarray, start: int) -> None:
    whole, resumed = list(sampler(lengths)), sampler(lengths)
    resumed.start = min(start, len(whole))
    rest = [batch.tolist() for batch, _ in resumed]
    assert rest == [batch.tolist() for batch, _ in whole[resumed.start + min(start, len(whole)) :]]
    assert len(list(resumed)) == len(whole), "only the first pass begins late"


def test_epochs_differ_seeds_repeat_and_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(5, 9, 64).astype(np.int32)
    options = [(0, 3), (1, 3), (0, 3), (0, 4)]
    first, *others = ([b.tolist() for b in sampler(lengths, seed=seed).plan(epoch)] for epoch, seed in options)
    assert [first == other for other in others] == [False, True, False]
    lengths = np.random.default_rng(0).integers(10, 200, 2000).astype(np.int32)
    batches = plan_batches(lengths, 16, None, np.random.default_rng(0))
    assert sum(len(batch) * int(lengths[batch].max()) for batch in batches) < 1.03 * lengths.sum()
