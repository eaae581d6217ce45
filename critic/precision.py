"""The precisions that scoring can run in."""

from typing import Any

import torch

from common.errors import UserError
from common.training import best_precision

PRECISIONS = ("auto", "32-true", "bf16", "int8")


def apply_precision(model: Any, precision: str, device: str) -> Any:
    """The model in a precision; `auto` is bf16 where the hardware computes in it, int8 on other CPUs."""
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}", mend=f"use one of {', '.join(PRECISIONS)}")
    if precision == "auto":
        native = best_precision("gpu" if device.startswith("cuda") else "cpu") == "bf16-mixed"
        precision = "bf16" if native else ("int8" if device == "cpu" else "32-true")
    if precision == "bf16":
        return model.to(torch.bfloat16)
    if precision == "int8":
        if device != "cpu":
            raise UserError("int8 scoring is for the CPU", mend="use bf16 on a GPU")
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    return model
