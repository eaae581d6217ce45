"""ModernBERT for the answers alone: the same logits as the whole model gives, and less work."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from critic.tagger.forward import answer_places, run_model
from critic.tagger.modernbert import answer_logits, needed, reads_answers
from faithkit.hardware import to_bf16
from faithkit.packing import use_packed_attention

WINDOW = st.tuples(st.integers(0, 90), st.integers(1, 40), st.integers(0, 5))  # before the answer, it, behind it


def build(num_layers: int, every: int, reach: int, *, only_near: bool = False, longest: int = 512) -> Any:
    """Random weights that are large enough for each token to see its neighbours; each `every`-th layer sees all.

    Args:
        only_near: No layer sees all.
    """
    from transformers import ModernBertConfig, ModernBertForTokenClassification

    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=longest,
        layer_types=["sliding_attention"] * num_layers if only_near else None,
        num_labels=5,
        local_attention=2 * reach,
        global_attn_every_n_layers=every,
        initializer_range=0.3,
        pad_token_id=1,
    )
    model = ModernBertForTokenClassification(config).eval()
    assert use_packed_attention(model)
    return model


def pack(windows: list[tuple[int, int, int]], seed: int = 0) -> dict[str, Tensor]:
    lengths = torch.tensor([sum(window) for window in windows])
    start = lengths.cumsum(0) - lengths
    begin = start + torch.tensor([before for before, _, _ in windows])
    end = begin + torch.tensor([answer for _, answer, _ in windows])
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(2, 50, (1, int(lengths.sum())), generator=generator),
        "position_ids": torch.cat([torch.arange(int(length)) for length in lengths])[None],
        "window_lengths": lengths,
        "bounds": torch.stack([start, begin, begin, end], dim=1),
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WINDOW, min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(1, 20),
    st.integers(0, 9),
)
def test_the_answers_get_the_logits_that_the_whole_model_gives(
    windows: list[tuple[int, int, int]], num_layers: int, every: int, reach: int, seed: int
) -> None:
    model, batch = build(num_layers, every or 1, reach, only_near=every == 0), pack(windows, seed)
    with torch.inference_mode():
        wanted = run_model(model, batch).logits[0][answer_places(batch)]
        torch.testing.assert_close(answer_logits(model, batch), wanted, rtol=1e-4, atol=1e-4)


def test_behind_the_last_layer_that_sees_all_only_an_answers_neighbours_are_read() -> None:
    model, batch = build(num_layers=6, every=3, reach=8), pack([(400, 20, 3), (5, 30, 1)])
    read = [sum(stretch.lengths) for stretch in needed(model.model.layers, batch)]
    # Layers 0 and 3 see all; 3 is asked for what 4 and 5 look at: twice 8 before the answer, and the rest behind it.
    assert read == [459, 459, 459, 459, 16 + 20 + 3 + 36, 8 + 20 + 3 + 36, 50]


def test_in_bf16_the_logits_stay_close_far_from_the_beginning_too() -> None:
    model, batch = build(num_layers=4, every=2, reach=8, longest=4096), pack([(3000, 50, 3), (5, 30, 1)])
    with torch.inference_mode():
        wanted = run_model(model, batch).logits[0][answer_places(batch)]
        found = answer_logits(to_bf16(model), batch)
    assert found.dtype == torch.bfloat16 and model.model.rotary_emb.full_attention_inv_freq.dtype == torch.float32
    for part in (slice(0, 50), slice(50, None)):
        assert (found.float() - wanted)[part].abs().mean() < 0.05 * wanted.std()


@pytest.mark.gpu
def test_on_a_gpu_the_whole_sequences_are_read() -> None:
    assert not reads_answers(build(1, 3, 8).to("cuda"))


def test_other_encoders_go_their_own_way() -> None:
    from transformers import BertConfig, BertForTokenClassification

    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    assert not reads_answers(BertForTokenClassification(config)) and reads_answers(build(1, 3, 8))
