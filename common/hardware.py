"""What the hardware is good at."""

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
