"""Causal sequences in one row: each reads as it would alone, with grouped heads, rotary places and sliding windows."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from faithkit import packing
from faithkit.packing import Packing, _on_gpu, packed_attention, use_packed_attention
from tests.faithkit.test_packing import dense

LENGTHS = (3, 90, 17, 129, 64)
FAMILIES = ("gpt2", "llama", "mistral")


def build(family: str) -> Any:
    """A tiny random causal model without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig

    torch.manual_seed(0)
    if family == "gpt2":
        plain = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
        return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=3, n_head=4, n_positions=256, **plain))
    from transformers import MistralForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
    }
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**shape))
    return MistralForCausalLM(MistralConfig(**shape, sliding_window=20))


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, 50, (length,), generator=generator) for length in LENGTHS]


def alone(model: Any, row: Tensor) -> Tensor:
    return model(input_ids=row[None], use_cache=False).logits[0]


def packed(model: Any, sequences: list[Tensor]) -> Tensor:
    lengths = [len(row) for row in sequences]
    places = torch.cat([torch.arange(length) for length in lengths])
    inputs = {"input_ids": torch.cat(sequences)[None], "position_ids": places[None], "packing": Packing.of(lengths)}
    return model(**inputs, use_cache=False).logits[0]


@pytest.mark.parametrize("longest", [packing.LONG, 100])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_each_sequence_alone(
    family: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LONG", longest)
    plain = build(family)
    twin = copy.deepcopy(plain)
    assert use_packed_attention(twin)
    wanted, found = torch.cat([alone(plain, row) for row in rows()]), packed(twin, rows())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)) / len(wanted)
    for made in (wanted, found):
        (made * weight).sum().backward()
    for (name, one), other in zip(plain.named_parameters(), twin.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, name
        torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_changing_one_sequence_changes_no_other_at_all(family: str) -> None:
    model, sequences = build(family), rows()
    assert use_packed_attention(model)
    with torch.inference_mode():
        before = packed(model, sequences).split(LENGTHS)
        sequences[2] = 51 - sequences[2]
        after = packed(model, sequences).split(LENGTHS)
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, True, False, True, True]


@pytest.mark.parametrize("sliding_window", [None, 9, 600])
def test_the_gpus_kernel_is_asked_for_the_same(sliding_window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, sum(LENGTHS), 8, generator=generator) for heads in (4, 2, 2))
    lengths = Packing.of(LENGTHS)
    options: dict[str, Any] = {"packing": lengths, "scaling": 0.3, "sliding_window": sliding_window}
    wanted, _ = packed_attention(torch.nn.Module(), query, key, value, None, is_causal=True, **options)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", dense)
    reach = None if sliding_window != 9 else 8
    torch.testing.assert_close(_on_gpu(query, key, value, lengths, 0.3, reach, True), wanted, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_on_a_gpu_is_near_fp32(family: str) -> None:
    model, sequences = build(family), rows()
    twin = copy.deepcopy(model).to("cuda", torch.bfloat16)
    assert use_packed_attention(twin)
    wanted = torch.cat([alone(model, row) for row in sequences])
    lengths = [len(row) for row in sequences]
    places = torch.cat([torch.arange(length) for length in lengths])
    logits = twin(
        input_ids=torch.cat(sequences)[None].cuda(),
        position_ids=places[None].cuda(),
        packing=Packing.of(lengths, "cuda"),
        use_cache=False,
    ).logits[0]
    logits.float().square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in twin.parameters() if p.grad is not None)
    assert (logits.float().cpu() - wanted).abs().mean() < 0.02
