"""Reads prompts packed: without padding, and each token of a shared beginning once, in passes of equal size.

Probabilities of the next token need no cache for later tokens. So the tokens of many prompts form one row, separated by
attention alone: a segment attends to itself and to the cached keys of the prefixes that it continues.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from faithkit.inference.decoding import Prompt

BLOCK = 256  # queries of a segment that attend together: bounds the size of a mask


@dataclass(slots=True, eq=False)
class Segment:
    """Tokens of a prompt's end, or of a beginning that prompts share.

    Args:
        start: The position of the first token.
        parent: The beginning that it continues.
        prompt: Of a prompt's end; None for a beginning.
        states: Keys and values [heads, tokens, size] of each layer, from position 0; of beginnings alone.
    """

    ids: NDArray[np.int32]
    start: int
    parent: "Segment | None" = None
    prompt: Prompt | None = None
    states: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class PackedPass:
    """The segments of one pass through the model; attention calls `attend` in each layer.

    Args:
        segments: A beginning comes before the segments that continue it.
    """

    def __init__(self, segments: Sequence[Segment]):
        self.segments = segments
        self.lengths = [len(segment.ids) for segment in segments]
        self.num_attended = 0  # layers so far
        self._biases: dict[tuple[int, int, int], Tensor] = {}

    def read(self, model: Any) -> tuple[list[Prompt], Tensor]:
        """Returns the prompts that end in the pass, and the logits of their next tokens [prompts, V]."""
        ids = torch.from_numpy(np.concatenate([segment.ids for segment in self.segments]).astype(np.int64))
        places = torch.cat([torch.arange(len(s.ids)) + s.start for s in self.segments])
        ends = np.cumsum(self.lengths) - 1
        prompts = [segment.prompt for segment in self.segments if segment.prompt is not None]
        chosen = [end for segment, end in zip(self.segments, ends, strict=True) if segment.prompt is not None]
        output = model(
            input_ids=ids[None].to(model.device),
            position_ids=places[None].to(model.device),
            logits_to_keep=torch.tensor(chosen or [0], device=model.device),
            use_cache=False,
            packed_pass=self,
        )
        return prompts, output.logits[0, : len(chosen)]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Computes causal attention of queries [1, heads, tokens, size]: [1, tokens, heads, size]."""
        outputs = []
        parts = zip(*(side[0].split(self.lengths, dim=1) for side in (query, key, value)), strict=True)
        for segment, (q, k, v) in zip(self.segments, parts, strict=True):
            if segment.parent is not None:
                before = segment.parent.states[self.num_attended]
                k, v = torch.cat([before[0], k], dim=1), torch.cat([before[1], v], dim=1)
            if segment.prompt is None:
                segment.states.append((k, v) if segment.parent else (k.clone(), v.clone()))
            outputs.append(self._attend_segment(q, k, v, scaling))
        self.num_attended += 1
        return torch.cat(outputs, dim=1).transpose(0, 1)[None]

    def _attend_segment(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Attends from the last tokens to all [heads, tokens, size]; query heads of a key head become its queries."""
        done, groups = key.shape[1] - query.shape[1], query.shape[0] // key.shape[0]
        if not done:
            sides = query[None], key[None], value[None]
            return scaled_dot_product_attention(*sides, is_causal=True, scale=scaling, enable_gqa=groups > 1)[0]
        outputs = []
        for part in query.split(BLOCK, dim=1):
            count = part.shape[1]
            done += count
            attended = scaled_dot_product_attention(
                part.unflatten(0, (-1, groups)).flatten(1, 2)[None],  # [1, key heads, groups * count, size]
                key[None, :, :done],
                value[None, :, :done],
                attn_mask=self._bias(groups, count, done, query),
                scale=scaling,
            )
            outputs.append(attended[0].unflatten(1, (groups, count)).flatten(0, 1))
        return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]

    def _bias(self, groups: int, count: int, width: int, like: Tensor) -> Tensor:
        """Gives 0 where the last `count` of `width` tokens may look and -inf elsewhere [groups * count, width]."""
        name = (groups, count, width)
        if name not in self._biases:
            seen = torch.ones(count, width, dtype=torch.bool, device=like.device).tril(width - count)
            bias = torch.zeros(count, width, dtype=like.dtype, device=like.device).masked_fill_(~seen, -torch.inf)
            self._biases[name] = bias.repeat(groups, 1)
        return self._biases[name]


def plan_passes(segments: Sequence[Segment], pass_tokens: int) -> Iterator[PackedPass]:
    """Fills passes with segments, which keep their order; frees the states of beginnings that nothing continues."""
    last_use = {id(segment.parent): number for number, segment in enumerate(segments)}
    begin = 0
    while begin < len(segments):
        end, tokens = begin, 0
        while end < len(segments) and (end == begin or tokens + len(segments[end].ids) <= pass_tokens):
            tokens += len(segments[end].ids)
            end += 1
        yield PackedPass(segments[begin:end])
        for segment in segments[:end]:
            if last_use.get(id(segment), 0) < end:
                segment.states.clear()
        begin = end
