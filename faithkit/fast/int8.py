"""Linear layers in int8, for CPUs.

Weights have 7 bits with a scale per output, activations 8 bits with a calibrated range per layer, so that a score does
not depend on its batch. The few inputs of a layer with far larger values are not quantised, because their range would
leave too few steps for the others (Dettmers et al. 2022, section 3).
"""

import warnings
from collections.abc import Callable
from platform import machine

import torch
from torch import Tensor, nn

from faithkit.fast.hardware import X86
from faithkit.fast.operators import has_operator

OUTLIERS = 0.03  # maximum fraction of a layer's inputs
OUTLIER_RATIO = 2.0  # an outlier's largest value is at least this multiple of the median input's
ENGINE = "onednn"
STEPS = 63  # per sign of a weight: two products of 8 by 7 bits fit the 16-bit accumulators of older x86 CPUs


def can_quantise(device: str) -> bool:
    """Whether int8 is possible: on an x86 CPU."""
    return device == "cpu" and machine() in X86 and ENGINE in torch.backends.quantized.supported_engines


class Int8Linear(nn.Module):
    """A linear layer in int8, except for its outlier inputs; outputs have the precision of inputs.

    Args:
        low: Smallest value of each input [in_features].
        high: Largest value of each input [in_features].
    """

    outlier_weight: Tensor  # [outliers, out_features]

    def __init__(self, linear: nn.Linear, low: Tensor, high: Tensor):
        super().__init__()
        weight = linear.weight.detach()
        reach = torch.maximum(high, -low)
        furthest = torch.topk(reach, max(1, int(OUTLIERS * len(reach)))).indices
        self.outliers = furthest[reach[furthest] > OUTLIER_RATIO * reach.median()].sort().values
        self.register_buffer("outlier_weight", weight[:, self.outliers].t().contiguous())
        inner = torch.ones(len(reach), dtype=torch.bool)
        inner[self.outliers] = False
        smallest, largest = min(0.0, float(low[inner].min())), max(0.0, float(high[inner].max()))
        self.scale = max(largest - smallest, 1e-8) / 255
        self.zero_point = round(-smallest / self.scale)
        self.weight_scale = (weight * inner).abs().amax(1).clamp_min(1e-8) / STEPS
        self.weight_zero_point = torch.zeros(len(weight), dtype=torch.long)
        steps = (weight * inner / self.weight_scale[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(steps, None)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(0, -2)
        quantised = torch.quantize_per_tensor(rows.float(), self.scale, self.zero_point, torch.quint8)
        steps = torch.empty(0, dtype=torch.uint8)  # a view of the same bytes; `int_repr` would copy them
        steps.set_(quantised.untyped_storage(), 0, quantised.shape, quantised.stride())
        weights = (self.packed, self.weight_scale, self.weight_zero_point, self.bias)
        outputs = torch.ops.onednn.qlinear_pointwise(
            steps, self.scale, self.zero_point, *weights, 1.0, 0, inputs.dtype, "none", [], ""
        )
        if len(self.outliers):
            outputs.addmm_(rows.index_select(1, self.outliers), self.outlier_weight)
        return outputs.view(*inputs.shape[:-1], outputs.shape[-1])


def quantise(model: nn.Module, calibrate: Callable[[], object]) -> None:
    """Replaces the linear layers that see every token by `Int8Linear`, if this torch has the operators.

    Args:
        calibrate: Runs the model on typical texts, on which the ranges of activations are measured.
    """
    if not has_operator("ops.onednn.qlinear_pointwise"):
        return
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def measure(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def record(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            if arguments[0].ndim < 3 or arguments[0].shape[1] == 1:
                return
            rows = arguments[0].flatten(0, -2)
            low, high = rows.amin(0), rows.amax(0)
            if name in ranges:
                low, high = torch.minimum(low, ranges[name][0]), torch.maximum(high, ranges[name][1])
            ranges[name] = low, high

        return record

    with warnings.catch_warnings():  # torch warns once that this function will move
        warnings.simplefilter("ignore")
        torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [module.register_forward_pre_hook(measure(name)) for name, module in linears.items()]
    try:
        calibrate()
    finally:
        for hook in hooks:
            hook.remove()
    for name, (low, high) in ranges.items():
        model.set_submodule(name, Int8Linear(linears[name], low, high))
