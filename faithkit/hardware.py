"""Finds the precision that the hardware computes fastest in, and turns models to bf16."""

from typing import Any

import torch

from faithkit.arguments import read_choice
from faithkit.settings.types import PRECISIONS


def best_precision(accelerator: str) -> str:
    """Chooses bf16-mixed where the hardware computes in it, else fp32: emulated bf16 is many times slower."""
    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()):
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16-mixed" if native else "32-true"


def computes_in_bf16(device: str) -> bool:
    """Tells whether a torch device is faster in bf16 than in fp32."""
    return best_precision("gpu" if device.startswith("cuda") else "cpu") == "bf16-mixed"


def wants_bf16(precision: str, device: str) -> bool:
    """Tells whether a model shall run in bf16: as asked, or for `auto` where the device is faster in it."""
    return precision == "bf16" or (precision == "auto" and computes_in_bf16(device))


def resolve_precision(precision: str, device: str) -> str:
    """Turns `auto` into 32-true or bf16 by the device, and refuses unknown precisions."""
    read_choice("precision", precision, PRECISIONS)
    return "bf16" if wants_bf16(precision, device) else "32-true"


def to_bf16(model: Any) -> Any:
    """Casts a model to bf16, but for the frequencies of rotary positions: rounded, they misplace far tokens."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq")
    ]
    model.to(torch.bfloat16)
    for module, name, buffer in kept:
        setattr(module, name, buffer)
    return model
