"""Packing: sequences of different lengths in a single row, without padding, where each attends to itself alone.

A model takes a packed row through transformers' attention interface:

    use_packed_attention(model)
    model(input_ids=ids[None], position_ids=places[None], packing=Packing.of(lengths))

Only attention mixes tokens, so only attention needs to know where a sequence ends. It gets the lengths with the call
and works on each sequence by itself: exact, and without the work that a mask over the whole row would cost. Resetting
the positions alone would not keep sequences apart.

A causal sequence may have branches: parts that continue the same beginning and do not see each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from faithkit.fast.hardware import answers_yes, has_operator, uses_onednn
from faithkit.fast.layers import SequenceAttention, multiply

NAME = "faithkit_packed"
NAME_OF_BOTH = "faithkit_packed_or_padded"
BAND = 64  # queries that share a stretch of keys where attention reaches only so far
LANES = 32  # numbers of bf16 that a CPU computes at once
QUERY_STEP, KEY_STEP = 128, 64  # oneDNN compiles a product for each length, so lengths are rounded up to these
QUERIES = 2048  # bytes of a column of scores that are computed at a time: 512 queries in fp32, 1,024 in bf16
SCORES = 2**19  # computed at a time, so that they stay in a CPU's cache
LONG_FP32 = 256  # tokens from which on oneDNN's fp32 products are quicker than torch's fused kernel, which calls MKL
HALVES = (torch.bfloat16, torch.float16)
FLASH = "ops.aten._flash_attention_forward"
LONG = 2048  # tokens from which on torch's fused kernel is quicker


@dataclass(frozen=True)
class Packing:
    """The bounds of the sequences in a packed row; made once a step and shared by all layers.

    Args:
        parts: For each sequence with branches the lengths of its beginning and of each branch.
        queries: For each sequence the number of queries, if not all of its tokens are read; full attention only.
    """

    lengths: tuple[int, ...]
    device: torch.device
    parts: tuple[tuple[int, ...], ...] | None = None
    queries: tuple[int, ...] | None = None
    _biases: dict[Any, list[Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, lengths: Any, device: Any = "cpu") -> "Packing":
        return cls(tuple(int(length) for length in lengths), torch.device(device))

    @classmethod
    def branched(cls, parts: Sequence[Sequence[int]], device: Any = "cpu") -> "Packing":
        """Packs causal sequences in parts: the first part is the beginning, from which each of the others goes on."""
        return cls(tuple(map(sum, parts)), torch.device(device), tuple(map(tuple, parts)))

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def boundaries(self) -> Tensor:
        """Cumulates the lengths, from 0 [sequences + 1]."""
        return self._cumulate(self.lengths)

    @cached_property
    def query_boundaries(self) -> Tensor:
        """Cumulates the numbers of queries, from 0 [sequences + 1]."""
        return self.boundaries if self.queries is None else self._cumulate(self.queries)

    def _cumulate(self, lengths: Sequence[int]) -> Tensor:
        return torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32).to(self.device)

    def band_bias(self, reach: int, dtype: torch.dtype, tokens: int) -> Tensor:
        """Gives 0 where a query may look and -inf elsewhere, for stretches of `BAND` queries and the keys around them.

        [stretches, BAND, band_keys(reach)]

        Args:
            tokens: Of the whole row, filling included.
        """
        name = f"band of {tokens}"
        return self._cached(name, reach, dtype, lambda: [band_bias(self.lengths, reach, dtype, tokens)])[0]

    def causal_biases(self, reach: int | None, dtype: torch.dtype) -> list[Tensor]:
        """Gives 0 where a token may look and -inf elsewhere, for each sequence; without branches parts of one bias.

        Args:
            reach: How far back it looks; None is all the way.
        """
        parts = [(self.longest,)] if self.parts is None else self.parts
        found = self._cached("causal", reach, dtype, lambda: [branch_bias(part, reach, dtype) for part in parts])
        return found if self.parts else [found[0][:length, :length] for length in self.lengths]

    def _cached(
        self, kind: str, reach: int | None, dtype: torch.dtype, build: Callable[[], list[Tensor]]
    ) -> list[Tensor]:
        name = (kind, reach, dtype)
        if name not in self._biases:
            self._biases[name] = [bias.to(self.device) for bias in build()]
        return self._biases[name]


def band_keys(reach: int) -> int:
    """Counts the keys of a stretch: those in reach, rounded up, because softmax is slow in rows of other lengths."""
    return -(-(BAND + 2 * reach) // LANES) * LANES


def band_bias(lengths: Sequence[int], reach: int, dtype: torch.dtype, tokens: int) -> Tensor:
    """Computes `Packing.band_bias`."""
    size = torch.tensor(lengths)
    begin, end = (torch.repeat_interleave(side, size) for side in (size.cumsum(0) - size, size.cumsum(0) - 1))
    place = torch.arange(-(-tokens // BAND) * BAND)
    stretch = place // BAND * BAND - reach  # the place of the first key of a query's stretch
    first, last, own = place - reach - stretch, place + reach - stretch, slice(len(begin))
    first[own] = torch.maximum(first[own], begin - stretch[own])
    last[own] = torch.minimum(last[own], end - stretch[own])
    first, last = (side.short().view(-1, BAND, 1) for side in (first, last))
    key = torch.arange(band_keys(reach), dtype=torch.short)
    seen = (key >= first).logical_and_(key <= last)  # [stretches, BAND, keys]
    return torch.where(seen, torch.zeros((), dtype=dtype), -torch.inf)


def branch_bias(lengths: Sequence[int], reach: int | None, dtype: torch.dtype) -> Tensor:
    """Gives 0 where a token may look and -inf elsewhere: back to the start of its part, then in the first part."""
    total, first = sum(lengths), lengths[0]
    part = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    place = torch.arange(total) - starts[part] + first * (part > 0)
    back = place[:, None] - place
    seen = (back >= 0) & (back <= (total if reach is None else reach)) & ((part[:, None] == part) | (part == 0))
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


def use_packed_attention(model: Any) -> bool:
    """Makes the model accept packed rows; False where its architecture has no attention interface."""
    from transformers import AttentionInterface

    if not getattr(model, "_supports_attention_backend", False):
        return False
    AttentionInterface.register(NAME, packed_attention)
    model.set_attn_implementation(NAME)
    return True


def allow_packed_attention(model: Any) -> bool:
    """Makes a model with transformers' attention interface accept packed rows too; False if it does not use sdpa."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation != "sdpa":
        return False

    def attention(*inputs: Any, packing: Packing | None = None, **options: Any) -> Any:
        if packing is None:
            return sdpa_attention_forward(*inputs, **options)
        module, query, key, value, *_ = inputs
        return packed_attention(module, query, key, value, None, packing=packing, **options)

    AttentionInterface.register(NAME_OF_BOTH, attention)
    AttentionMaskInterface.register(NAME_OF_BOTH, sdpa_mask)
    model.set_attn_implementation(NAME_OF_BOTH)
    return True


def first_position(model: Any) -> int:
    """Returns the position of a sequence's first token: RoBERTa's positions start after its padding id."""
    positions = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return 0 if padding is None else padding + 1


def pack_inputs(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
    """Packs the rows of a padded batch if the model takes packed rows and that is faster on its device.

    Args:
        model: `allow_packed_attention` has changed it, or it takes no packed rows.
        batch: On any device; packed rows are copied to that of the model while it computes.
    """
    is_possible = "attention_mask" in batch and getattr(model.config, "_attn_implementation", "") == NAME_OF_BOTH
    is_faster = model.device.type == "cpu" or model.dtype in HALVES or torch.is_autocast_enabled("cuda")
    if not is_possible or not is_faster:
        return dict(batch)
    packed = pack_rows(batch, first_position(model))
    if model.device.type != "cpu" and batch["attention_mask"].device.type == "cpu":
        lengths = packed.pop("packing").lengths
        packed = {name: side.pin_memory().to(model.device, non_blocking=True) for name, side in packed.items()}
        packed["packing"] = Packing.of(lengths, model.device)
    return packed


def pack_rows(inputs: Mapping[str, Tensor], first_position: int = 0) -> dict[str, Any]:
    """Packs the rows of padded inputs, which have an `attention_mask`.

    Args:
        first_position: The position of a sequence's first token.
    """
    mask = inputs["attention_mask"].bool()
    packed: dict[str, Any] = {name: side[mask][None] for name, side in inputs.items() if name != "attention_mask"}
    packed["position_ids"] = (mask.cumsum(1) - 1 + first_position)[mask][None]
    return packed | {"packing": Packing.of(mask.sum(1).tolist(), mask.device)}


def places_between(begin: Tensor, end: Tensor) -> Tensor:
    """Concatenates the ranges `begin` to `end` of each window."""
    size = end - begin
    starts = torch.repeat_interleave(begin - (size.cumsum(0) - size), size)
    return starts + torch.arange(len(starts), device=begin.device)


def is_packed(model: Any) -> bool:
    """Whether `use_packed_attention` has changed the model."""
    return bool(getattr(model.config, "_attn_implementation", None) == NAME)


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Computes scaled dot-product attention within each sequence of a row.

    Args:
        query: [1, heads, tokens, size], as key and value, which may have fewer heads: each then serves several. On a
            CPU there may be tokens behind the last sequence, for which the result means nothing.
        sliding_window: A token sees those less than this far away; None sees its whole sequence.
        is_causal: Whether a token sees only those before it; None takes the setting of the layer.
        position_bias: Added to the scores of each sequence [1, heads, longest, longest]; on a CPU, not causal.

    Returns:
        [1, tokens, heads, size], and no attention weights.
    """
    assert attention_mask is None and query.shape[0] == 1, "a packed row comes alone and without a mask"
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    reach = sliding_window - 1 if sliding_window is not None and sliding_window <= packing.longest else None
    if query.is_cuda and torch.is_autocast_enabled("cuda"):  # rotary positions are computed in fp32
        query, key, value = (side.to(torch.get_autocast_dtype("cuda")) for side in (query, key, value))
    is_plain = packing.parts is None and position_bias is None
    if is_plain and query.is_cuda and query.dtype in HALVES and has_operator(FLASH):
        return _on_gpu(query, key, value, packing, scaling, reach, causal, dropout), None
    if (dropout or position_bias is not None) and not causal and reach is None and not query.is_cuda:
        sides = (side[0].transpose(0, 1) for side in (query, key, value))
        bias = None if position_bias is None else position_bias[0]
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        counts = packing.queries or packing.lengths, packing.lengths
        attended = SequenceAttention.apply(*sides, bias, *counts, scale, dropout)
        return attended[None], None
    if key.shape[1] < query.shape[1]:
        key, value = (side.repeat_interleave(query.shape[1] // side.shape[1], dim=1) for side in (key, value))
    if reach is not None and not causal:
        return _banded(query, key, value, packing, dropout, scaling, reach), None
    assert packing.queries is None or not causal, "a causal token is read with all those before it"
    sizes = (packing.queries or packing.lengths, packing.lengths, packing.lengths)
    is_long = packing.longest >= LONG_FP32 if query.dtype == torch.float32 else not is_fused(query)
    if not causal and is_long and _infers_with_onednn(query):
        return _by_products(query[0], key[0], value[0], *sizes[:2], scaling), None
    sides = (
        side[0, :, : sum(lengths)].split(lengths, dim=1)
        for side, lengths in zip((query, key, value), sizes, strict=True)
    )
    parts = zip(*sides, strict=True)
    if causal and packing.parts is None and packing.longest > LONG and reach is None:
        options: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "is_causal": True}
        outputs = [F.scaled_dot_product_attention(q[None], k[None], v[None], **options)[0] for q, k, v in parts]
    else:
        assert causal or packing.parts is None, "branches are of causal sequences"
        biases = packing.causal_biases(reach, query.dtype) if causal else [None] * len(packing.lengths)
        outputs = [attend(q, k, v, bias, dropout, scaling) for (q, k, v), bias in zip(parts, biases, strict=True)]
    filling = query.new_zeros(query.shape[1], query.shape[2] - sum(sizes[0]), value.shape[-1])
    return torch.cat([output.transpose(0, 1) for output in (*outputs, filling)])[None], None


def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float, scaling: float | None
) -> Tensor:
    """Computes attention over all keys of each batch entry [batch, queries, size].

    On a CPU torch's fused kernel is made for fp32 and for AMX: in bf16 without AMX two products and a softmax take half
    of its time, and backwards a third, until the scores of a very long sequence leave the cache.
    """
    if query.shape[1] > LONG or is_fused(query):
        mask = None if bias is None else bias[None]
        sides = (query[None], key[None], value[None])
        return F.scaled_dot_product_attention(*sides, attn_mask=mask, dropout_p=dropout, scale=scaling)[0]
    if scaling != 1:
        query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    key = key.transpose(1, 2)
    scores = torch.bmm(query, key) if bias is None else torch.baddbmm(bias, query, key)
    return torch.bmm(F.dropout(softmax(scores), dropout), value)


def _infers_with_onednn(states: Tensor) -> bool:
    return uses_onednn(states.dtype, states.device) and not torch.is_grad_enabled()


def softmax(scores: Tensor) -> Tensor:
    """Computes the softmax of rows; oneDNN takes half of torch's time or less in bf16, but has no gradient."""
    if scores.dtype == torch.bfloat16 and _infers_with_onednn(scores):
        weights: Tensor = scores.to_mkldnn().softmax(-1).to_dense()
        return weights
    return scores.softmax(-1)


def _by_products(
    query: Tensor, key: Tensor, value: Tensor, queries: Sequence[int], keys: Sequence[int], scaling: float | None
) -> Tensor:
    """Computes attention as `attend`, sequence by sequence and some heads at a time [1, tokens, heads, size].

    Lengths are rounded up: the tokens after a sequence are read too, and their scores become -inf.

    Args:
        query: [heads, tokens, size], as key and value.
        queries: The number of queries of each sequence.
        keys: And of keys.
    """
    output = query.new_zeros(query.shape[1] + QUERY_STEP, len(query), value.shape[-1])
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    query, key, value = (F.pad(side, (0, 0, 0, QUERY_STEP)) for side in (query, key, value))
    first_query = first_key = 0
    for num_queries, num_keys in zip(queries, keys, strict=True):
        read, seen = (
            step * max(1, -(-count // step)) for count, step in ((num_queries, QUERY_STEP), (num_keys, KEY_STEP))
        )
        around = slice(first_key, first_key + seen)
        rows = slice(first_query, first_query + read)  # the next sequence overwrites what is too much
        _attend_in_blocks(query[:, rows], key[:, around], value[:, around], num_keys, output[rows])
        first_query, first_key = first_query + num_queries, first_key + num_keys
    return output[None, :-QUERY_STEP]


def _attend_in_blocks(query: Tensor, key: Tensor, value: Tensor, num_keys: int, output: Tensor) -> None:
    """Writes the attention to `num_keys` keys to the output [queries, heads, size], a block of scores at a time."""
    size = QUERIES // query.itemsize
    heads = max(1, SCORES // (min(size, query.shape[1]) * key.shape[1])) if query.dtype == torch.bfloat16 else 1
    for row in range(0, query.shape[1], size):
        rows = slice(row, row + size)
        for first in range(0, len(query), heads):
            part = slice(first, first + heads)
            scores = _multiply_heads(query[part, rows], key[part].transpose(1, 2))
            scores[:, :, num_keys:] = -torch.inf
            output[rows, part] = _multiply_heads(softmax(scores), value[part]).transpose(0, 1)


def _multiply_heads(left: Tensor, right: Tensor) -> Tensor:
    """Computes left @ right of each head with oneDNN, in fp32 of a single head, because `bmm` calls MKL."""
    if left.dtype == torch.bfloat16:
        return torch.bmm(left, right)
    return multiply(left[0], right[0].t())[None]


def is_fused(query: Tensor) -> bool:
    """Whether torch's fused kernel is the quicker one on this CPU."""
    return query.dtype == torch.float32 or (has_amx() and not query.requires_grad)


@cache
def has_amx() -> bool:
    """Whether the CPU has units for products of matrices in bf16."""
    return answers_yes("cpu._is_amx_tile_supported") and torch.backends.cpu.get_cpu_capability() != "AVX2"


def _on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    scaling: float | None,
    reach: int | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Computes attention in torch's flash kernel; its public function `varlen_attn` has no dropout."""
    # [tokens, heads, size]; the gradient of an index would be a copy
    q, k, v = (side.squeeze(0).transpose(0, 1) for side in (query, key, value))
    bounds = (packing.query_boundaries, packing.boundaries, max(packing.queries or packing.lengths), packing.longest)
    back = -1 if reach is None else reach
    window = {"window_size_left": back, "window_size_right": 0 if causal else back}
    attend_in_flash: Any = torch.ops.aten._flash_attention_forward
    output: Tensor = attend_in_flash(q, k, v, *bounds, dropout, causal, False, scale=scaling, **window)[0]
    return output[None]


def _banded(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, dropout: float, scaling: float | None, reach: int
) -> Tensor:
    """Computes attention over `reach` tokens to either side: the work grows with the length, not its square."""
    tokens, filling = query.shape[2], -query.shape[2] % BAND
    behind = band_keys(reach) - BAND - reach + filling
    queries = F.pad(query[0], (0, 0, 0, filling)).unflatten(1, (-1, BAND))
    keys, values = (
        F.pad(side[0], (0, 0, reach, behind)).unfold(1, band_keys(reach), BAND).transpose(2, 3) for side in (key, value)
    )
    bias = packing.band_bias(reach, query.dtype, tokens)
    if query.is_cuda:
        q, k, v = (side.flatten(0, 1) for side in (queries, keys, values))
        seen = attend(q, k, v, bias.repeat(len(queries), 1, 1), dropout, scaling).view(queries.shape)
    elif is_fused(query):
        q, k, v = (side.transpose(0, 1) for side in (queries, keys, values))  # [stretches, heads, BAND, size]
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None], dropout_p=dropout, scale=scaling)
        return seen.transpose(1, 2).flatten(0, 1)[None, :tokens]
    else:  # head by head: the scores of all of them would not stay in a CPU's cache
        heads = zip(queries, keys, values, strict=True)
        seen = torch.stack([attend(q, k, v, bias, dropout, scaling) for q, k, v in heads])
    return seen.flatten(1, 2).transpose(0, 1)[None, :tokens]
