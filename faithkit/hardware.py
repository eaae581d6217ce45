"""What the hardware is good at."""

from typing import Any

import torch


def best_precision(accelerator: str) -> str:
    """bf16-mixed where the hardware computes in it, else fp32: emulated bf16 is many times slower than fp32."""
    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()):
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16-mixed" if native else "32-true"


def computes_in_bf16(device: str) -> bool:
    """Whether a torch device is faster in bf16 than in fp32."""
    return best_precision("gpu" if device.startswith("cuda") else "cpu") == "bf16-mixed"


def wants_bf16(precision: str, device: str) -> bool:
    """Whether a model shall run in bf16: asked for, or left to what the device is fastest in."""
    return precision == "bf16" or (precision == "auto" and computes_in_bf16(device))


def to_bf16(model: Any) -> Any:
    """The model in bf16, but for the frequencies of rotary positions: rounded, they would turn far tokens astray."""
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
