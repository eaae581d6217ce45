"""Fast linear layers (those of oneDNN, and int8), and attention and dropout of training on a CPU.

oneDNN computes linear layers where that is faster (`hardware.uses_onednn`), in training and inference.

torch multiplies fp32 matrices with MKL, which uses AVX-512 on Intel's processors only: on AMD's its products take twice
the time. torch also contains oneDNN, but calls it in bf16 only.

oneDNN compiles a product for each number of rows, and keeps half a megabyte of each. The rows are filled with zeros so
that few numbers occur, in bf16 too.

int8 is for CPUs. Weights have 7 bits with a scale per output, activations 8 bits with a calibrated range per layer, so
that a score does not depend on its batch. The few inputs of a layer with far larger values are not quantised, because
their range would leave too few steps for the others (Dettmers et al. 2022, section 3).

Attention and dropout make fewer passes over the data than torch's. torch's fused attention has no dropout on a CPU; its
fallback makes ten passes over padded scores. Its dropout draws each random bit in seven nanoseconds.
"""

import warnings
from collections.abc import Callable, Sequence
from platform import machine
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faithkit.fast.hardware import X86, has_operator, uses_onednn

MIN_ROWS = 8  # with fewer rows MKL is as fast
OUTLIERS = 0.03  # maximum fraction of a layer's inputs
OUTLIER_RATIO = 2.0  # an outlier's largest value is at least this multiple of the median input's
ENGINE = "onednn"
STEPS = 63  # per sign of a weight: two products of 8 by 7 bits fit the 16-bit accumulators of older x86 CPUs
BITS = 16  # of each random number


def round_up(number: int) -> int:
    """Rounds a number of rows up: 32 numbers occur up to 256, and 16 for each doubling."""
    step = max(MIN_ROWS, (1 << (number - 1).bit_length()) // 32)
    return -(-number // step) * step


class LinearProduct(torch.autograd.Function):
    """Computes `F.linear` of rows [rows, inputs] and its gradients with oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return multiply(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight.t()) if of_rows else None,
            multiply(gradient.t(), rows.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def multiply(rows: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """Computes activation(rows @ weight^T + bias) with oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, activation, [], "none")
    return product


class OneDnnLinear(nn.Linear):
    """A linear layer that oneDNN computes in fp32 or bf16 on a CPU; elsewhere, and for a few rows, torch does."""

    def forward(self, input: Tensor) -> Tensor:
        is_known = input.dtype == self.weight.dtype and input.dtype in (torch.float32, torch.bfloat16)
        is_elsewhere = input.device.type != "cpu" or torch.is_autocast_enabled("cpu")
        if not is_known or is_elsewhere or input.numel() < MIN_ROWS * self.in_features:
            return F.linear(input, self.weight, self.bias)
        rows = input.flatten(0, -2)
        filling = round_up(len(rows)) - len(rows)
        filled = F.pad(rows, (0, 0, 0, filling)) if filling else rows
        if torch.is_grad_enabled():
            product: Tensor = LinearProduct.apply(filled, self.weight, self.bias)
        else:
            product = multiply(filled, self.weight, self.bias)
        return product[: len(rows)].unflatten(0, input.shape[:-1])


def speed_up_linear_layers(model: nn.Module) -> None:
    """Lets oneDNN compute a model's linear layers if it is faster here. The weights and their names stay."""
    if _uses_onednn(model):
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear


def missing_rows(model: nn.Module, number: int) -> int:
    """Returns the rows that a batch lacks to a rounded number; a model that adds them spares its layers the copies."""
    return round_up(number) - number if _uses_onednn(model) else 0


def _uses_onednn(model: nn.Module) -> bool:
    first = next(model.parameters())
    return uses_onednn(first.dtype, first.device)


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


def draw_kept(count: int, dropout: float) -> tuple[Tensor, float]:
    """Draws which of `count` numbers dropout keeps (1, else 0), and returns the probability to be kept.

    The stream is seeded by torch's generator. The probability has 16 bits. A product with int8 takes a third of the
    time of one with bool.
    """
    seed = int(torch.randint(2**62, ()))
    words = np.random.SFC64(seed).random_raw(-(-count * BITS // 64))
    limit = round(dropout * 2**BITS)
    kept = torch.from_numpy(words.view(np.int16))[:count] >= limit - 2 ** (BITS - 1)
    return kept.view(torch.int8), 1 - limit / 2**BITS


class Dropout(nn.Dropout):
    """Dropout with cheap random bits on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not 0 < self.p < 1 or input.device.type != "cpu":
            return super().forward(input)
        kept, share = draw_kept(input.numel(), self.p)
        return (input * kept.view(input.shape)).mul_(1 / share)


def replace_dropout(model: nn.Module) -> None:
    """Replaces the dropout modules of a model."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Dropout:
            model.set_submodule(name, Dropout(module.p).train(module.training))


class SequenceAttention(torch.autograd.Function):
    """Computes softmax(scaling * query key^T + bias) value within each sequence of a packed row.

    Args:
        query: [queries, heads, size]; key and value [keys, heads, size].
        bias: Added to the scores [heads or 1, longest, longest]; None for none.
        num_queries: Queries of each sequence, and `num_keys` its keys.
        dropout: Of the probabilities.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        num_queries: Sequence[int],
        num_keys: Sequence[int],
        scaling: float,
        dropout: float,
    ) -> Tensor:
        sizes = [query.shape[1] * count * width for count, width in zip(num_queries, num_keys, strict=True)]
        kept, share = draw_kept(sum(sizes), dropout) if dropout else (None, 1.0)
        masks = [None] * len(sizes) if kept is None else kept.split(sizes)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        saved = []
        with torch.autocast("cpu", enabled=False):
            bias = None if bias is None else bias.to(query.dtype)
            sides = (_split(output, num_queries), _split(query, num_queries), _split(key, num_keys))
            for out, q, k, v, mask in zip(*sides, _split(value, num_keys), masks, strict=True):
                part = None if bias is None else bias[:, : q.shape[1], : k.shape[1]]
                shares = _product(q, k.transpose(1, 2), scaling, part).softmax(-1)
                dropped = shares if mask is None else shares * mask.view_as(shares)
                out.copy_(_product(dropped, v, 1 / share))
                saved += [shares, dropped]
        ctx.save_for_backward(query, key, value, output, *saved)
        ctx.options = bias is not None, share, num_queries, num_keys, scaling
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, *saved = ctx.saved_tensors
        has_bias, share, num_queries, num_keys, scaling = ctx.options
        longest = max(num_queries), max(num_keys)
        of_bias = torch.zeros(query.shape[1], *longest) if has_bias else None
        gradients = [torch.empty_like(side, memory_format=torch.contiguous_format) for side in (query, key, value)]
        counts = (num_queries, num_keys, num_keys)
        inputs = [_split(side, count) for side, count in zip((query, key, value), counts, strict=True)]
        outputs = [_split(side, count) for side, count in zip(gradients, counts, strict=True)]
        # The sum of a row of shares times their gradients is that of its output times its gradient.
        sums = _split((gradient * output).sum(-1, keepdim=True), num_queries)
        rows = zip(*inputs, *outputs, _split(gradient, num_queries), sums, saved[::2], saved[1::2], strict=True)
        for q, k, v, of_q, of_k, of_v, of_out, total, shares, dropped in rows:
            scores = _product(of_out, v.transpose(1, 2), 1 / share).mul_(dropped).addcmul_(shares, total, value=-1)
            of_q.copy_(_product(scores, k, scaling))
            of_k.copy_(_product(scores.transpose(1, 2), q, scaling))
            of_v.copy_(_product(dropped.transpose(1, 2), of_out, 1 / share))
            if of_bias is not None:
                of_bias[:, : q.shape[1], : k.shape[1]] += scores
        return (*gradients, of_bias, None, None, None, None)


def _split(side: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """Splits [tokens, heads, size] into sequences [heads, tokens, size]."""
    return side.transpose(0, 1).split(counts, 1)


def _product(left: Tensor, right: Tensor, factor: float, bias: Tensor | None = None) -> Tensor:
    """Computes factor * left @ right + bias of batches of matrices."""
    if bias is None:
        return torch.baddbmm(left.new_empty(()), left, right, beta=0, alpha=factor)
    return torch.baddbmm(bias, left, right, alpha=factor)
