"""Sequences packed into one row: the same logits and gradients as each by itself, and none sees another."""

import copy
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor

from critic.tagger.windows import run_model
from faithkit.fast import packing
from faithkit.fast.packing import Packing, _on_gpu, attend, branch_bias, packed_attention, use_packed_attention

LENGTHS = (3, 300, 17, 129, 64)
ENCODERS, CAUSAL = ("bert", "roberta", "modernbert"), ("gpt2", "llama", "mistral")
SIZE: dict[str, Any] = {
    **{"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"intermediate_size": 48, "max_position_embeddings": 514},
}


def build(family: str) -> Any:
    """A tiny random model: a token classifier, or a causal one; nothing in it is random in use."""
    torch.manual_seed(0)
    grouped = {**SIZE, "num_key_value_heads": 2}
    # Every third layer of ModernBERT sees all; the others 8 tokens to either side, far less than the sequences have.
    near = {"local_attention": 16, "global_attn_every_n_layers": 3, "pad_token_id": 1}
    makers = {
        "bert": lambda: t.BertForTokenClassification(t.BertConfig(**SIZE)),
        "roberta": lambda: t.RobertaForTokenClassification(t.RobertaConfig(**SIZE, pad_token_id=1)),
        "modernbert": lambda: t.ModernBertForTokenClassification(t.ModernBertConfig(**SIZE, **near)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=50, n_embd=32, n_layer=3, n_head=4, n_positions=512)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**grouped)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**grouped, sliding_window=20)),
    }
    return makers[family]().eval()


def packed_twin(model: Any) -> Any:
    twin = copy.deepcopy(model)
    assert use_packed_attention(twin)
    return twin


def sequences() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, 50, (length,), generator=generator) for length in LENGTHS]


def alone(family: str, model: Any, row: Tensor) -> Tensor:
    if family in CAUSAL:
        return model(input_ids=row[None], use_cache=False).logits[0]
    return run_model(model, {"input_ids": row[None], "attention_mask": torch.ones_like(row)[None]}).logits[0]


def packed(family: str, model: Any, rows: list[Tensor]) -> Tensor:
    """The logits of a packed row [tokens, classes]."""
    device, lengths = model.device, [len(row) for row in rows]
    places = torch.cat([torch.arange(length) for length in lengths])[None].to(device)
    inputs: dict[str, Any] = {"input_ids": torch.cat(rows)[None].to(device), "position_ids": places}
    if family in CAUSAL:
        return model(**inputs, packing=Packing.of(lengths, device), use_cache=False).logits[0]
    return run_model(model, {**inputs, "window_lengths": torch.tensor(lengths)}).logits[0]


@pytest.mark.parametrize(
    ("family", "longest"), [(f, packing.LONG) for f in (*ENCODERS, *CAUSAL)] + [(f, 100) for f in CAUSAL]
)
def test_logits_and_gradients_are_those_of_each_sequence_alone(
    family: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LONG", longest)
    plain, rows = build(family), sequences()
    twin = packed_twin(plain)
    wanted, found = torch.cat([alone(family, plain, row) for row in rows]), packed(family, twin, rows)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)) / len(wanted)
    for model, made in ((plain, wanted), (twin, found)):
        (made * weight).sum().backward()
        assert model.get_input_embeddings().weight.grad.abs().max() > 1e-4
    for (name, one), other in zip(plain.named_parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", [*ENCODERS, *CAUSAL])
def test_changing_one_sequence_changes_no_other_at_all(family: str) -> None:
    model, rows = packed_twin(build(family)), sequences()
    with torch.inference_mode():
        before = packed(family, model, rows).split(LENGTHS)
        rows[3] = 51 - rows[3]
        after = packed(family, model, rows).split(LENGTHS)
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, True, True, False, True]


@pytest.mark.parametrize("length", [7, 8, 9, 10, 11])
def test_sequences_about_as_long_as_the_window(length: int) -> None:
    model, row = build("modernbert"), sequences()[1][:length]
    found = packed("modernbert", packed_twin(model), [row])
    torch.testing.assert_close(found, alone("modernbert", model, row), rtol=0, atol=1e-5)


def test_a_band_sees_its_own_sequence_and_no_further_than_it_reaches() -> None:
    own = Packing.of((3, 4))
    mask = own.band_bias(2, torch.float32, 7)[0] == 0
    seen = [[key - 2 for key in torch.nonzero(mask[query]).flatten().tolist()] for query in range(7)]
    assert seen == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6], [4, 5, 6]]
    assert own.longest == 4 and own.boundaries.tolist() == [0, 3, 7]


@pytest.mark.parametrize("scaling", [None, 0.25, 1, 2])
def test_both_ways_to_attend_agree(scaling: float | None) -> None:
    draw = torch.Generator().manual_seed(0)
    sides = [torch.randn(2, 5, 16, generator=draw).bfloat16() for _ in range(3)]
    bias = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    wanted = attend(*(side.float() for side in sides), bias, 0.0, scaling)
    found = attend(*sides, bias.bfloat16(), 0.0, scaling)
    torch.testing.assert_close(found.float(), wanted, rtol=0, atol=0.03)


@pytest.mark.parametrize("sliding_window", [None, 9])
@pytest.mark.parametrize("filling", [0, 61])
@torch.inference_mode()
def test_inference_in_bf16_is_near_fp32(filling: int, sliding_window: int | None) -> None:
    """Lengths need not be multiples of the step; some sequences have fewer queries than keys, one has none."""
    queries = None if sliding_window else (3, 70, 0, 128, 1)
    row, draw = Packing(LENGTHS, torch.device("cpu"), queries=queries), torch.Generator().manual_seed(0)
    counts = [sum(queries or LENGTHS), sum(LENGTHS), sum(LENGTHS)]
    sides = [torch.randn(1, 3, count + filling, 16, generator=draw).bfloat16() for count in counts]
    options: dict[str, Any] = {"packing": row, "sliding_window": sliding_window}
    wanted, _ = packed_attention(torch.nn.Module(), *(side.float() for side in sides), None, **options)
    found, _ = packed_attention(torch.nn.Module(), *sides, None, **options)
    assert found.shape == (1, counts[0] + filling, 3, 16)
    torch.testing.assert_close(found[:, : counts[0]].float(), wanted[:, : counts[0]], rtol=0, atol=0.03)


@pytest.mark.parametrize("reach", [None, 1, 2])
def test_a_branch_sees_itself_and_the_trunk_and_no_other_branch(reach: int | None) -> None:
    """A trunk of three tokens, and branches of two and one that go on from it: each place by hand."""
    part, place = [0, 0, 0, 1, 1, 2], [0, 1, 2, 3, 4, 3]
    seen = [
        [part[other] in (0, part[one]) and 0 <= place[one] - place[other] <= (reach or 9) for other in range(6)]
        for one in range(6)
    ]
    assert (branch_bias([3, 2, 1], reach, torch.float32) == 0).tolist() == seen


def test_an_attention_of_its_own_cannot_be_packed() -> None:
    assert not use_packed_attention(torch.nn.Linear(2, 2))


def dense(
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor, _: Any, *others: Any, scale: Any, **window: int
) -> tuple[Tensor, None]:
    """Computes what torch's flash kernel does."""
    parts = []
    assert others[:2] == (max(ends.diff().tolist()),) * 2 and others[2] == 0.0
    window_size = window["window_size_left"], window["window_size_right"]
    assert others[3] == (window_size[1] == 0)
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        place = torch.arange(high - low)
        left, right = (side if side >= 0 else high for side in window_size)
        behind = place[None] - place[:, None]
        seen = (behind >= -left) & (behind <= right)
        sides = (side[low:high].transpose(0, 1) for side in (q, k, v))
        options = {"attn_mask": seen, "scale": scale, "enable_gqa": True}
        parts.append(torch.nn.functional.scaled_dot_product_attention(*sides, **options))
    return torch.cat(parts, dim=1).transpose(0, 1), None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sliding_window", [None, 9, 200, 600])
def test_the_gpus_kernel_is_asked_for_the_same(
    sliding_window: int | None, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, sum(LENGTHS), 8, generator=generator) for heads in (4, 2, 2))
    row = Packing.of(LENGTHS)
    options: dict[str, Any] = {"packing": row, "scaling": 0.3, "sliding_window": sliding_window, "is_causal": causal}
    wanted, _ = packed_attention(torch.nn.Module(), query, key, value, None, **options)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", dense)
    reach = None if sliding_window in (None, 600) else sliding_window - 1
    torch.testing.assert_close(_on_gpu(query, key, value, row, 0.3, reach, causal, 0.0), wanted, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("family", [*ENCODERS, *CAUSAL])
def test_bf16_on_a_gpu_is_near_fp32(family: str) -> None:
    model, rows = build(family), sequences()
    twin = packed_twin(model).to("cuda", torch.bfloat16)
    wanted = torch.cat([alone(family, model, row) for row in rows])
    logits = packed(family, twin, rows)
    logits.float().square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in twin.parameters() if p.grad is not None)
    assert (logits.float().cpu() - wanted).abs().mean() < 0.02
