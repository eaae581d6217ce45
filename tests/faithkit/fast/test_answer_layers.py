"""Layers that compute only the answers' tokens, and gated layers: the logits of the complete model."""

import copy
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.activations import ACT2FN

from critic.tagger.windows import _answer_logits
from faithkit.fast.layers import OneDnnLinear, speed_up_linear_layers
from faithkit.fast.model_layers import compute_gated, keep_answers, plan_answers
from faithkit.fast.packing import use_packed_attention
from tests.faithkit.fast.test_packing import build

WINDOW = st.tuples(st.integers(0, 90), st.integers(0, 40), st.integers(1, 20))  # before, answer, after


def make_batch(windows: list[tuple[int, int, int]]) -> dict[str, Tensor]:
    before, answer, _ = sides = torch.tensor(windows).T
    size = sides.sum(0)
    first = size.cumsum(0) - size + before
    ids = torch.randint(2, 50, (1, int(size.sum())), generator=torch.Generator().manual_seed(len(windows)))
    return {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(length) for length in size.tolist()])[None],
        "window_lengths": size,
        "bounds": torch.stack([first, first, first, first + answer], dim=1),
    }


@pytest.fixture(scope="module", params=["bert", "roberta", "modernbert", "modernbert by oneDNN"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[torch.nn.Module, torch.nn.Module]]:
    family, *by_onednn = request.param.split(" ", 1)
    whole = build(family)
    # Initial weights are so small that a wrong layer would change the output too little.
    for weights in whole.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    assert use_packed_attention(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faithkit.fast.hardware.has_slow_mkl", lambda: bool(by_onednn))
        short = keep_answers(copy.deepcopy(whole))
        speed_up_linear_layers(short)
        yield whole, short


@settings(max_examples=40, deadline=None)
@given(windows=st.lists(WINDOW, min_size=1, max_size=6))
@torch.inference_mode()
def test_logits_are_those_of_the_complete_model(
    pair: tuple[torch.nn.Module, torch.nn.Module], windows: list[tuple[int, int, int]]
) -> None:
    whole, short = pair
    batch = make_batch(windows)
    expected, found = _answer_logits(whole, batch), _answer_logits(short, batch)
    assert found.shape == (sum(answer for _, answer, _ in windows), whole.config.num_labels)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_bf16_logits_are_as_near_to_those_of_fp32(family: str) -> None:
    whole, batch = build(family), make_batch([(300, 40, 1), (20, 3, 1)])
    assert use_packed_attention(whole)
    expected = _answer_logits(whole, batch)
    short = keep_answers(copy.deepcopy(whole)).bfloat16()
    error = (_answer_logits(short, batch).float() - expected).abs().max()
    assert error <= 1.5 * (_answer_logits(copy.deepcopy(whole).bfloat16(), batch).float() - expected).abs().max() + 1e-3


def test_a_modernbert_layer_reads_what_the_layers_above_it_can_see() -> None:
    model = build("modernbert")  # full, 8 to either side, 8 to either side
    keep_answers(model)
    _, stretches = plan_answers(model, {}, torch.tensor([60, 10]), torch.tensor([50, 2]), torch.tensor([55, 9]))
    assert [stretch.packing.lengths for stretch in stretches] == [(60, 10), (26, 10), (18, 10)]
    assert [stretch.packing.queries for stretch in stretches] == [(26, 10), None, None]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_product_with_its_activation_equals_the_steps(dtype: torch.dtype, error: float, bias: bool) -> None:
    torch.manual_seed(0)
    linear, states = nn.Linear(16, 24, bias=bias).to(dtype), torch.randn(1, 7, 16, dtype=dtype)
    linear.__class__ = OneDnnLinear
    for activation in (ACT2FN["gelu"], ACT2FN["relu"]):
        steps = compute_gated(linear, states, activation)
        with torch.inference_mode():
            found = compute_gated(linear, states, activation)
        assert steps.requires_grad and not found.requires_grad
        torch.testing.assert_close(found, steps, rtol=0, atol=error)
