"""Converts a model to the precision of scoring: fp32, bf16 or int8.

int8 is for CPUs: weights have 7 bits with a scale per output, activations 8 bits with a calibrated range per layer, so
that a score does not depend on its batch. The few inputs of a layer with far larger values are not quantised, because
their range would leave too few steps for the others (Dettmers et al. 2022, section 3). All other operations run in bf16
if the CPU supports it, else in fp32.
"""

import warnings
from collections.abc import Callable
from platform import machine
from typing import Any

import torch
from torch import Tensor, nn

from critic.requests import Request
from critic.runtime.onnx_model import ONNX
from data_modules.encoding.encoder import question_text
from faithkit.arguments import read_choice
from faithkit.errors import UserError
from faithkit.fast.hardware import X86, computes_in_bf16, to_bf16
from faithkit.fast.linear_layers import speed_up_linear_layers
from faithkit.settings.types import DETECTOR_PRECISIONS

OUTLIERS = 0.03  # maximum fraction of a layer's inputs
OUTLIER_RATIO = 2.0  # an outlier's largest value is at least this multiple of the median input's
ENGINE = "onednn"
STEPS = 63  # per sign of a weight: two products of 8 by 7 bits fit the 16-bit accumulators of older x86 CPUs


def apply_precision(model: Any, precision: str, device: str, calibrate: Callable[[], object]) -> Any:
    """Converts the model; `auto` is bf16 if the hardware supports it, int8 on other x86 CPUs.

    Args:
        calibrate: Runs the model on typical texts; int8 measures the ranges of activations on them.
    """
    check_precision(precision)
    supported = device == "cpu" and machine() in X86 and ENGINE in torch.backends.quantized.supported_engines
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "int8" if supported else "32-true"
    if precision == "bf16":
        model = to_bf16(model)
    if precision == "int8":
        if not supported:
            raise UserError("int8 scoring is for x86 CPUs", hint="use bf16 on a GPU, else 32-true")
        quantise(model, calibrate)
        if computes_in_bf16(device):
            to_bf16(model)
    if precision != ONNX:
        speed_up_linear_layers(model)
    return model


def check_precision(precision: str) -> None:
    """Raises a UserError for an unknown precision."""
    read_choice("precision", precision, DETECTOR_PRECISIONS)


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
    """Replaces the linear layers that see every token by `Int8Linear`."""
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


def calibration_pairs() -> tuple[list[str], list[str]]:
    """Returns fixed pairs with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 384))
    knowledge = [" ".join(e.knowledge for e in examples[i : i + 1 + i % 8]) for i in range(48)]
    return knowledge, [example.response for example in examples[:48]]


def calibration_requests() -> list[Request]:
    """Returns fixed requests with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 192))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(24)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]
