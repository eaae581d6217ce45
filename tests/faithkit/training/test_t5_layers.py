"""A T5 with other layers and a packed encoder: the logits and gradients of transformers' own."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from faithkit.training.t5_layers import speed_up

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
@pytest.mark.parametrize("checkpointing", [False, True])
def test_logits_and_gradients_are_those_of_transformers(activation: str, checkpointing: bool) -> None:
    plain = build(feed_forward_proj=activation)
    model, inputs = deepcopy(plain), batch()
    speed_up(model)
    if checkpointing:
        model.gradient_checkpointing_enable()
    for _ in range(2):  # rows without padding may follow packed ones
        for each in (plain, model):
            each.zero_grad()
            logits = each(**inputs, use_cache=False).logits
            logits.pow(3).mean().backward()
        assert torch.allclose(logits, plain(**inputs, use_cache=False).logits, rtol=1e-4, atol=1e-5)
        found = dict(model.named_parameters())
        for name, weights in plain.named_parameters():
            atol = 1e-5 * float(weights.grad.abs().max())
            assert torch.allclose(found[name].grad, weights.grad, rtol=1e-3, atol=atol), name
        inputs.pop("attention_mask", None)


def test_errors_in_bf16_are_no_larger() -> None:
    plain = build(feed_forward_proj="gated-gelu")
    model = deepcopy(plain)
    speed_up(model)
    with torch.no_grad():
        exact = plain(**batch(), use_cache=False).logits
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        errors = [float((each(**batch(), use_cache=False).logits - exact).abs().mean()) for each in (plain, model)]
    assert errors[1] < 1.2 * errors[0]


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
