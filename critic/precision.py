"""The precisions that scoring can run in.

int8 is made for CPUs: weights in 7 bits with a scale for each output, activations in 8 bits with a range for each layer
that is measured beforehand, so that a score does not depend on its batch; the few inputs of a layer that are far larger
than the others stay in fp32, because their range would leave the others no digits (Dettmers et al. 2022, section 3).
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from common.errors import UserError
from common.hardware import best_precision

PRECISIONS = ("auto", "32-true", "bf16", "int8")
OUTLIERS = 0.03  # of a layer's inputs; EXPERIMENTS.md, Speed
ENGINE = "fbgemm"  # its kernels multiply 8 bits by 7 without saturating, on every x86 CPU


def apply_precision(model: Any, precision: str, device: str, calibrate: Callable[[], object]) -> Any:
    """The model in a precision; `auto` is bf16 where the hardware computes in it, int8 on other x86 CPUs.

    Args:
        calibrate: Runs the model on texts like those it is for; int8 measures the layers' ranges on them.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}", mend=f"use one of {', '.join(PRECISIONS)}")
    supported = device == "cpu" and ENGINE in torch.backends.quantized.supported_engines
    if precision == "auto":
        native = best_precision("gpu" if device.startswith("cuda") else "cpu") == "bf16-mixed"
        precision = "bf16" if native else "int8" if supported else "32-true"
    if precision == "bf16":
        return model.to(torch.bfloat16)
    if precision == "int8":
        if not supported:
            raise UserError("int8 scoring is for x86 CPUs", mend="use bf16 on a GPU, else 32-true")
        quantise(model, calibrate)
    return model


class Int8Linear(nn.Module):
    """A linear layer in int8, but for its outlying inputs.

    Args:
        low: Smallest value of each input [in_features].
        high: Largest value of each input [in_features].
    """

    def __init__(self, linear: nn.Linear, low: Tensor, high: Tensor):
        super().__init__()
        weight = linear.weight.detach()
        reach = torch.maximum(high, -low)
        self.outliers = torch.topk(reach, max(1, int(OUTLIERS * len(reach)))).indices.sort().values
        self.outlier_weight = weight[:, self.outliers].t().contiguous()  # [outliers, out_features]
        inner = torch.ones(len(reach), dtype=torch.bool)
        inner[self.outliers] = False
        smallest, largest = min(0.0, float(low[inner].min())), max(0.0, float(high[inner].max()))
        self.scale = max(largest - smallest, 1e-8) / 255
        self.zero_point = round(-smallest / self.scale)
        self.packed = _pack(weight * inner, None if linear.bias is None else linear.bias.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.contiguous()
        outputs = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            inputs, self.scale, self.zero_point, self.packed
        )
        rows = inputs.view(-1, inputs.shape[-1])
        outputs.view(len(rows), -1).addmm_(rows.index_select(1, self.outliers), self.outlier_weight)
        return outputs


def _pack(weight: Tensor, bias: Tensor | None) -> Any:
    scales = weight.abs().amax(1).clamp_min(1e-8) / 63  # 7 bits: two products of 8 by 7 bits fit the kernel's 16
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch means to move these functions; its version is pinned
            zero_points = torch.zeros(len(scales), dtype=torch.long)
            quantised = torch.quantize_per_channel(weight, scales.double(), zero_points, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(quantised, bias)
    finally:
        torch.backends.quantized.engine = before


def quantise(model: nn.Module, calibrate: Callable[[], object]) -> None:
    """Puts `Int8Linear` in place of the linear layers that see every token; a head on one token costs nothing."""
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def measure(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            if arguments[0].ndim < 3:
                return
            rows = arguments[0].flatten(0, -2)
            low, high = rows.amin(0), rows.amax(0)
            if name in ranges:
                low, high = torch.minimum(low, ranges[name][0]), torch.maximum(high, ranges[name][1])
            ranges[name] = low, high

        return note

    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [module.register_forward_pre_hook(measure(name)) for name, module in linears.items()]
    try:
        calibrate()
    finally:
        for hook in hooks:
            hook.remove()
    for name, (low, high) in ranges.items():
        model.set_submodule(name, Int8Linear(linears[name], low, high))
