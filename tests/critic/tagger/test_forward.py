"""A packed ModernBERT in bf16 gives what it gives in fp32, also far from the beginning."""

from typing import Any

import torch
from torch import Tensor

from critic.tagger.windows import answer_places, run_model
from faithkit.hardware import to_bf16
from faithkit.packing import use_packed_attention


def build(num_layers: int, every: int, reach: int, *, longest: int = 512) -> Any:
    """Random weights that are large enough for each token to see its neighbours; each `every`-th layer sees all."""
    from transformers import ModernBertConfig, ModernBertForTokenClassification

    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=longest,
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


def test_in_bf16_the_logits_stay_close_far_from_the_beginning_too() -> None:
    model, batch = build(num_layers=4, every=2, reach=8, longest=4096), pack([(3000, 50, 3), (5, 30, 1)])
    with torch.inference_mode():
        wanted = run_model(model, batch).logits[0][answer_places(batch)]
        found = run_model(to_bf16(model), batch).logits[0][answer_places(batch)]
    assert found.dtype == torch.bfloat16 and model.model.rotary_emb.full_attention_inv_freq.dtype == torch.float32
    for part in (slice(0, 50), slice(50, None)):
        assert (found.float() - wanted)[part].abs().mean() < 0.05 * wanted.std()
