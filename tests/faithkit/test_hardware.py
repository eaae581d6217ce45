"""What runs where, told before a long work."""

import torch
from torch import nn

from faithkit import hardware


def test_an_emulated_precision_is_reported_before_training(monkeypatch):
    for computes, is_reported in ((False, True), (True, False)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda computes=computes: computes)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert ("emulated" in hardware.describe(nn.Linear(2, 2), "cpu", "bf16-mixed")) is is_reported
        assert ("emulated" in hardware.describe(nn.Linear(2, 2).to(torch.bfloat16), "cpu")) is is_reported
        assert "emulated" not in hardware.describe(nn.Linear(2, 2), "cpu", "32-true")
