"""A T5 with other layers and a packed encoder, and norms in mixed precision: transformers' logits and gradients."""

from copy import deepcopy
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from faithkit.fast.model_layers import replace_layers, use_half_norms

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
    replace_layers(model)
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
    replace_layers(model)
    with torch.no_grad():
        exact = plain(**batch(), use_cache=False).logits
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        errors = [float((each(**batch(), use_cache=False).logits - exact).abs().mean()) for each in (plain, model)]
    assert errors[1] < 1.2 * errors[0]


def test_a_refused_batch_leaves_the_model_usable() -> None:
    model = build()
    replace_layers(model)
    with pytest.raises(IndexError):
        model(**{**batch(), "input_ids": torch.full((3, 20), 99)})
    assert model(**batch(), use_cache=False).logits.shape == (3, 7, 60)


SIZE: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS = {
    "bert": lambda: t.BertModel(t.BertConfig(**SIZE, intermediate_size=48)),
    "llama": lambda: t.LlamaModel(t.LlamaConfig(**SIZE, intermediate_size=48)),
}


@pytest.mark.parametrize("family", MODELS)
def test_states_and_gradients_are_near_those_of_fp32(family: str) -> None:
    torch.manual_seed(0)
    model, ids = MODELS[family]().eval(), torch.arange(24).view(2, 12)
    names, gradients, states = set(model.state_dict()), [], []
    for changes in (False, True):
        if changes:
            use_half_norms(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=changes):
            states.append(model(input_ids=ids).last_hidden_state.float())
        model.zero_grad()
        states[-1][..., :7].square().mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert set(model.state_dict()) == names
    assert (states[1] - states[0]).norm() < 0.02 * states[0].norm()
    assert (gradients[1] - gradients[0]).norm() < 0.05 * gradients[0].norm()


def test_norms_within_layers_return_the_type_of_autocast() -> None:
    model, seen = MODELS["bert"](), {}
    use_half_norms(model)
    for name, module in model.named_modules():
        if name.endswith("LayerNorm"):
            module.register_forward_hook(lambda _, __, out, name=name: seen.update({name: out.dtype}))
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=torch.arange(12)[None])
    assert seen.pop("embeddings.LayerNorm") == torch.float32
    assert set(seen.values()) == {torch.bfloat16} and len(seen) == 4
