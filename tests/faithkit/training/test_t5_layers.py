"""A T5 with other layers and a packed encoder: the logits and gradients of transformers' own."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from faithkit.fast.t5_layers import speed_up

SIZES: dict[str, Any] = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}


def build(**options: Any) -> Any:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(**SIZES, dropout_rate=0.0, **options)).train()


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(20) < torch.tensor([20, 3, 11])[:, None]
    ids = torch.randint(2, 60, (3, 20), generator=generator).masked_fill(~mask, 0)
    decoded = torch.randint(2, 60, (3, 7), generator=generator)
    return {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": decoded}


@pytest.mark.parametrize("activation", ["gated-gelu", "relu"])
@pytest.mark.parametrize(("padded", "checkpointing"), [(True, False), (True, True), (False, False)])
def test_logits_and_gradients_are_those_of_transformers(activation: str, padded: bool, checkpointing: bool) -> None:
    plain = build(feed_forward_proj=activation)
    model = deepcopy(plain)
    speed_up(model)
    if checkpointing:
        model.gradient_checkpointing_enable()
    inputs = batch()
    if not padded:
        del inputs["attention_mask"]
    for each in (plain, model):
        logits = each(**inputs, use_cache=False).logits
        logits.pow(3).mean().backward()
    assert torch.allclose(logits, plain(**inputs, use_cache=False).logits, rtol=1e-4, atol=1e-5)
    expected = {name: weights.grad for name, weights in plain.named_parameters()}
    found = {name: weights.grad for name, weights in model.named_parameters()}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max())), name


def test_errors_in_bf16_are_no_larger() -> None:
    plain = build(feed_forward_proj="gated-gelu")
    model = deepcopy(plain)
    speed_up(model)
    with torch.no_grad():
        exact = plain(**batch(), use_cache=False).logits
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        errors = [float((each(**batch(), use_cache=False).logits - exact).abs().mean()) for each in (plain, model)]
    assert errors[1] < 1.2 * errors[0]


def test_rows_without_padding_may_follow_packed_ones() -> None:
    plain, inputs = build(), batch()
    model = deepcopy(plain)
    speed_up(model)
    model(**inputs, use_cache=False)
    del inputs["attention_mask"]
    assert torch.allclose(model(**inputs).logits, plain(**inputs).logits, rtol=1e-4, atol=1e-5)


def test_a_refused_batch_leaves_the_model_usable() -> None:
    model = build()
    speed_up(model)
    with pytest.raises(IndexError):
        model(**{**batch(), "input_ids": torch.full((3, 20), 99)})
    assert model(**batch(), use_cache=False).logits.shape == (3, 7, 60)


def test_other_models_are_not_changed() -> None:
    model = BartForConditionalGeneration(BartConfig(vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1))
    before = [type(module) for module in model.modules()]
    speed_up(model)
    assert [type(module) for module in model.modules()] == before
