"""What runs where, told before a long work."""

import torch
from torch import nn

from faithkit.fast import hardware


def test_an_emulated_precision_is_reported_before_training(monkeypatch):
    for computes, is_reported in ((False, True), (True, False)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda computes=computes: computes)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert ("emulated" in hardware.describe(nn.Linear(2, 2), "cpu", "bf16-mixed")) is is_reported
        assert ("emulated" in hardware.describe(nn.Linear(2, 2).to(torch.bfloat16), "cpu")) is is_reported
        assert "emulated" not in hardware.describe(nn.Linear(2, 2), "cpu", "32-true")


def test_in_bf16_the_frequencies_of_rotary_positions_stay_exact():
    from transformers import ModernBertConfig, ModernBertModel

    size = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 48}
    model = hardware.to_bf16(ModernBertModel(ModernBertConfig(vocab_size=50, pad_token_id=1, **size)))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.rotary_emb.full_attention_inv_freq.dtype == torch.float32
