"""Prompts keep their keys while texts end, begin and change rows; logits are as exact as those of transformers."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from faithkit.fast.t5_state import PromptKeys, T5State
from tests.faithkit.inference.models import BEGIN, PAD, model_of, prompts


def make_keys(count: int) -> PromptKeys:
    """Makes keys that name their prompt."""
    names = torch.arange(count)
    keys = names.float().view(-1, 1, 1, 1).repeat(1, 2, 3, 4)
    return PromptKeys(names.clone(), [(keys.clone(), keys + 100) for _ in range(2)], keys[:, :1, :1, :3].clone())


def names_by_row(keys: PromptKeys) -> dict[int, int]:
    """Reads the prompt of each row from every tensor."""
    sides = [side for pair in keys.states for side in (pair[0], pair[1] - 100)] + [keys.bias]
    found = [[int(value) for value in side.flatten(1).amax(1)] for side in sides]
    assert all(each == found[0] for each in found) and all(len(side) == len(keys.rows) for side in sides)
    return dict(zip(keys.rows.tolist(), found[0], strict=True))


@given(st.integers(1, 8), st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4))
def test_the_keys_that_remain_are_those_of_their_rows(count: int, ended: list[list[int]]) -> None:
    keys, expected = make_keys(count), {row: row for row in range(count)}
    for rows in ended:
        keys.remove(torch.tensor(rows, dtype=torch.long))
        expected = {row: name for row, name in expected.items() if row not in rows}
        assert names_by_row(keys) == expected


@given(st.integers(1, 6), st.lists(st.integers(0, 8), max_size=9))
def test_selected_rows_take_their_keys_along(count: int, rows: list[int]) -> None:
    expected = {new: old for new, old in enumerate(rows) if old < count}
    assert names_by_row(make_keys(count).select(torch.tensor(rows, dtype=torch.long))) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["t5", "mt5"])
@torch.inference_mode()
def test_logits_are_as_exact_as_those_of_transformers(family: str, dtype: torch.dtype) -> None:
    exact, model = (deepcopy(model_of(family)).to(precision) for precision in (torch.float64, dtype))
    ids, last = [prompt.ids for prompt in prompts(5)], torch.tensor([8, 9, 10, 11, 12])
    state, logits = T5State.read(model, ids, PAD, (BEGIN, 7))
    found = torch.stack([logits, state.step(model, last)], dim=1).double()

    def by_transformers(side: Any) -> Tensor:
        rows = zip((torch.from_numpy(row)[None].long() for row in ids), last.tolist(), strict=True)
        written = [(row, torch.tensor([[BEGIN, 7, token]])) for row, token in rows]
        return torch.cat([side(input_ids=r, decoder_input_ids=w).logits[:, 1:].double() for r, w in written])

    expected = by_transformers(exact)
    allowed = 1.5 * float((by_transformers(model) - expected).abs().mean())
    assert float((found - expected).abs().mean()) <= allowed < 0.3 * float(expected.abs().mean())
