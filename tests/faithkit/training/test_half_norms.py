"""Norms in mixed precision: half precision out, near fp32, with gradients, and the same weights."""

from typing import Any

import pytest
import torch
import transformers as t

from faithkit.training.module import use_half_norms

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
