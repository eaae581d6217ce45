"""Attention and dropout in training on a CPU: fewer passes over the data than torch's own.

torch's fused attention has no dropout on a CPU; its fallback makes ten passes over padded scores. Its dropout draws
each random bit in seven nanoseconds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

BITS = 16  # of each random number


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
