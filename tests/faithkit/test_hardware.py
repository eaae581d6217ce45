"""What runs where, told before a long work."""

import torch
from torch import nn

from faithkit import hardware


def test_a_precision_that_the_processor_only_imitates_is_told_before_the_training(monkeypatch):
    for computes, told in ((False, True), (True, False)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda computes=computes: computes)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert ("imitated" in hardware.describe(nn.Linear(2, 2), "cpu", "bf16-mixed")) is told
        assert ("imitated" in hardware.describe(nn.Linear(2, 2).to(torch.bfloat16), "cpu")) is told
        assert "imitated" not in hardware.describe(nn.Linear(2, 2), "cpu", "32-true")
