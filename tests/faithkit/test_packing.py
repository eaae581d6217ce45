"""Sequences packed into one row: the same logits and gradients as each by itself, and none sees another."""

from typing import Any

import pytest
import torch
from torch import Tensor

from critic.tagger.windows import run_model
from faithkit.packing import Packing, _on_gpu, attend, branch_bias, packed_attention, use_packed_attention

LENGTHS = (3, 300, 17, 129, 64, 500)
FAMILIES = ("bert", "roberta", "modernbert")


def build(family: str) -> Any:
    """A tiny random token classifier whose attention has nothing random in it."""
    from transformers import BertConfig, ModernBertConfig, RobertaConfig
    from transformers import BertForTokenClassification as Bert
    from transformers import ModernBertForTokenClassification as ModernBert
    from transformers import RobertaForTokenClassification as Roberta

    shape: dict[str, Any] = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
        "num_labels": 5,
    }
    torch.manual_seed(0)
    if family == "bert":
        return Bert(BertConfig(**shape)).eval()
    if family == "roberta":
        return Roberta(RobertaConfig(**{**shape, "max_position_embeddings": 514}, pad_token_id=1)).eval()
    # Every third layer sees all; the others 8 tokens to either side, far less than the sequences have.
    config = ModernBertConfig(**shape, local_attention=16, global_attn_every_n_layers=3, pad_token_id=1)
    return ModernBert(config).eval()


def sequences(seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, 50, (length,), generator=generator) for length in LENGTHS]


def packed_batch(rows: list[Tensor]) -> dict[str, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    places = torch.cat([torch.arange(len(row)) for row in rows])
    second = torch.cat([(torch.arange(len(row)) > len(row) // 2).long() for row in rows])
    return {
        "input_ids": torch.cat(rows)[None],
        "position_ids": places[None],
        "window_lengths": lengths,
        "token_type_ids": second[None],
    }


def alone(model: Any, row: Tensor) -> Tensor:
    second = (torch.arange(len(row)) > len(row) // 2).long()
    batch = {"input_ids": row[None], "attention_mask": torch.ones_like(row)[None], "token_type_ids": second[None]}
    return run_model(model, only_known(model, batch)).logits[0]


def only_known(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the types of the halves where the model takes none of them."""
    return {name: value for name, value in batch.items() if name != "token_type_ids" or type(model).__name__[0] == "B"}


def packed_twin(model: Any) -> Any:
    import copy

    twin = copy.deepcopy(model)
    assert use_packed_attention(twin)
    return twin


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_each_sequence_alone(family: str) -> None:
    plain, rows = build(family), sequences()
    twin = packed_twin(plain)
    wanted = torch.cat([alone(plain, row) for row in rows])
    logits = run_model(twin, only_known(twin, packed_batch(rows))).logits[0]
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-5)
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)) / len(wanted)
    for model, made in ((plain, wanted), (twin, logits)):
        (made * weight).sum().backward()
        assert model.get_input_embeddings().weight.grad.abs().max() > 1e-4
    for (name, one), other in zip(plain.named_parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=1e-5, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_batch_gives_the_same_too(family: str) -> None:
    model, rows = build(family), [row for row in sequences() if len(row) < 200]
    width = max(len(row) for row in rows)
    ids = torch.stack([torch.nn.functional.pad(row, (0, width - len(row)), value=1) for row in rows])
    mask = torch.stack([(torch.arange(width) < len(row)).long() for row in rows])
    batch = {"input_ids": ids, "attention_mask": mask}
    padded = run_model(model, batch).logits[mask.bool()]
    twin, packed = packed_twin(model), packed_batch(rows)
    del packed["token_type_ids"]
    torch.testing.assert_close(run_model(twin, packed).logits[0], padded, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_changing_one_sequence_changes_no_other_at_all(family: str) -> None:
    model, rows = packed_twin(build(family)), sequences()
    with torch.inference_mode():
        before = run_model(model, only_known(model, packed_batch(rows))).logits[0].split(LENGTHS)
        changed = [*rows[:3], 51 - rows[3], *rows[4:]]
        after = run_model(model, only_known(model, packed_batch(changed))).logits[0].split(LENGTHS)
    for place, (one, other) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(one, other) == (place != 3), place


@pytest.mark.parametrize("length", [7, 8, 9, 10, 11])
def test_sequences_about_as_long_as_the_window(length: int) -> None:
    model = build("modernbert")
    row = sequences()[1][:length]
    packed = packed_batch([row])
    del packed["token_type_ids"]
    wanted = run_model(model, {"input_ids": row[None], "attention_mask": torch.ones_like(row)[None]}).logits
    torch.testing.assert_close(run_model(packed_twin(model), packed).logits, wanted, rtol=0, atol=1e-5)


def test_a_band_sees_its_own_sequence_and_no_further_than_it_reaches() -> None:
    packing = Packing.of((3, 4))
    mask = packing.band_bias(2, torch.float32)[0] == 0
    seen = [[key - 2 for key in torch.nonzero(mask[query]).flatten().tolist()] for query in range(7)]
    assert seen == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6], [4, 5, 6]]
    assert packing.longest == 4 and packing.boundaries.tolist() == [0, 3, 7]


@pytest.mark.parametrize("scaling", [None, 0.25, 1, 2])
def test_both_ways_to_attend_agree(scaling: float | None) -> None:
    draw = torch.Generator().manual_seed(0)
    sides = [torch.randn(2, 5, 16, generator=draw).bfloat16() for _ in range(3)]
    bias = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    wanted = attend(*(side.float() for side in sides), bias, 0.0, scaling)
    found = attend(*sides, bias.bfloat16(), 0.0, scaling)
    torch.testing.assert_close(found.float(), wanted, rtol=0, atol=0.03)


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
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor, _: Any, *lengths: int, scale: Any, window_size: Any, enable_gqa: bool
) -> Tensor:
    """Computes what torch's varlen_attn says that it does."""
    parts = []
    assert lengths == (max(ends.diff().tolist()),) * 2
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        place = torch.arange(high - low)
        left, right = (side if side >= 0 else high for side in window_size)
        behind = place[None] - place[:, None]
        seen = (behind >= -left) & (behind <= right)
        sides = (side[low:high].transpose(0, 1) for side in (q, k, v))
        options = {"attn_mask": seen, "scale": scale, "enable_gqa": enable_gqa}
        parts.append(torch.nn.functional.scaled_dot_product_attention(*sides, **options))
    return torch.cat(parts, dim=1).transpose(0, 1)


@pytest.mark.parametrize("sliding_window", [None, 9, 200, 600])
def test_the_gpus_kernel_is_asked_for_the_same(sliding_window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, sum(LENGTHS), 8, generator=generator) for _ in range(3))
    packing = Packing.of(LENGTHS)
    options: dict[str, Any] = {"packing": packing, "scaling": 0.3, "sliding_window": sliding_window}
    wanted, _ = packed_attention(torch.nn.Module(), query, key, value, None, **options)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", dense)
    reach = None if sliding_window in (None, 600) else sliding_window - 1
    torch.testing.assert_close(_on_gpu(query, key, value, packing, 0.3, reach), wanted, rtol=0, atol=1e-5)
    one, alike = ([side[:, :1].expand(1, heads, -1, -1) for side in (key, value)] for heads in (1, 2))
    shared, each = (_on_gpu(query, *sides, packing, 0.3, reach) for sides in (one, alike))
    torch.testing.assert_close(shared, each, rtol=0, atol=1e-5, msg="heads that share their keys")


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_on_a_gpu_is_near_fp32(family: str) -> None:
    model, rows = build(family), sequences()
    twin = packed_twin(model).to("cuda", torch.bfloat16)
    wanted = torch.cat([alone(model, row) for row in rows])
    batch = {name: value.to("cuda") for name, value in only_known(twin, packed_batch(rows)).items()}
    logits = run_model(twin, batch).logits[0]
    logits.float().square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in twin.parameters() if p.grad is not None)
    assert (logits.float().cpu() - wanted).abs().mean() < 0.02
