"""Reads prompts into a decoding state; a prefix that prompts share (instruction, examples, dialogue) is read once.

Probabilities of the next token alone need no cache for later tokens. So prompts are read packed for them, without
padding: the tokens of many prompts form one row, separated by attention. A segment attends to itself and to the cached
keys of the prefixes that it continues.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from faithkit.fast import accelerate_decoding
from faithkit.inference.text import Decoding, Prompt

MIN_PREFIX = 16  # tokens that a shared prefix adds to the one that it extends
# Prompt tokens of one pass, padding included. A CPU is fastest while a layer's activations stay in its cache.
CPU_PASS_TOKENS, GPU_PASS_TOKENS = 1024, 16_384
# Tokens, of prompts and their shared prefixes, whose keys and values are kept at a time.
CPU_KEPT_TOKENS, GPU_KEPT_TOKENS = 16_384, 65_536
# Tokens that a shared prefix must save: on a GPU an additional pass costs as much as thousands of tokens.
CPU_MIN_SAVED, GPU_MIN_SAVED = 64, 8192
BLOCK = 256  # queries of a segment that attend together: bounds the size of a mask


@dataclass(slots=True)
class PrefixGroup:
    """Prompts with a common prefix, which is shorter than each of them.

    Args:
        length: Tokens of the prefix.
        ids: Those of one of its prompts, which begin with the prefix.
        members: Prompts that share no longer prefix with another one.
        groups: Groups of prompts that do.
    """

    length: int = 0
    ids: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    members: list[Prompt] = field(default_factory=list)
    groups: list["PrefixGroup"] = field(default_factory=list)


def group_by_prefix(prompts: Sequence[Prompt], min_saved: int) -> PrefixGroup:
    """Groups prompts recursively by common prefixes.

    Args:
        min_saved: Tokens that a group must save, because its prefix takes an additional pass through the model.
    """
    ordered = sorted(prompts, key=lambda prompt: prompt.ids.astype(">u4").tobytes())
    common = []  # tokens of the prefix that neighbours share, which never includes the last token of either
    for one, other in pairwise(ordered):
        limit = min(len(one.ids), len(other.ids)) - 1
        differ = np.flatnonzero(one.ids[:limit] != other.ids[:limit])
        common.append(int(differ[0]) if len(differ) else limit)
    root = PrefixGroup()
    ranges = [(0, len(ordered), root)]  # positions in `ordered`, with their group
    while ranges:
        begin, end, group = ranges.pop()
        if end - begin < 2:
            group.members.extend(ordered[begin:end])
            continue
        length = min(common[begin : end - 1])
        added = length - group.length
        if added >= MIN_PREFIX and added * (end - begin - 1) >= min_saved:
            inner = PrefixGroup(length, ordered[begin].ids)
            group.groups.append(inner)
            group = inner
        cuts = [place + 1 for place in range(begin, end - 1) if common[place] == length]
        ranges += [(first, last, group) for first, last in pairwise([begin, *cuts, end])]
    return root


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
            if (name := (groups, count, done)) not in self._biases:  # 0 where the tokens may look and -inf elsewhere
                seen = torch.ones(count, done, dtype=torch.bool, device=query.device).tril(done - count)
                bias = torch.zeros(count, done, dtype=query.dtype, device=query.device)
                self._biases[name] = bias.masked_fill_(~seen, -torch.inf).repeat(groups, 1)
            attended = scaled_dot_product_attention(
                part.unflatten(0, (-1, groups)).flatten(1, 2)[None],  # [1, key heads, groups * count, size]
                key[None, :, :done],
                value[None, :, :done],
                attn_mask=self._biases[name],
                scale=scaling,
            )
            outputs.append(attended[0].unflatten(1, (groups, count)).flatten(0, 1))
        return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]


def list_segments(group: PrefixGroup, parent: Segment | None = None) -> Iterator[Segment]:
    """Yields the ends of the group's prompts, and its inner groups' beginnings, each before what continues it."""
    done = group.length
    for prompt in group.members:
        yield Segment(prompt.ids[done:], done, parent, prompt)
    for inner in group.groups:
        shared = Segment(inner.ids[done : inner.length], done, parent)
        yield shared
        yield from list_segments(inner, shared)


class PromptReader:
    """Reads prompts with a transformers model, causal or encoder-decoder.

    Args:
        model: Is put into evaluation mode.
        decoder_prefix: Tokens that every text of an encoder-decoder begins with.
    """

    def __init__(self, model: Any, *, eos_id: int, pad_id: int, decoder_prefix: Sequence[int] = ()):
        self.model, self.eos_id, self.pad_id = model.eval(), eos_id, pad_id
        self.is_seq2seq = bool(model.config.is_encoder_decoder)
        assert bool(decoder_prefix) == self.is_seq2seq, "an encoder-decoder, and no other model, has a decoder_prefix"
        self.decoder_prefix = tuple(decoder_prefix)
        self.state, takes_passes = accelerate_decoding(model)
        on_cpu = model.device.type == "cpu"
        self.pass_tokens = CPU_PASS_TOKENS if on_cpu else GPU_PASS_TOKENS
        self.kept_tokens = CPU_KEPT_TOKENS if on_cpu else GPU_KEPT_TOKENS
        # A sliding window counts columns, and after a shared prefix a row may have unused columns.
        slides = getattr(model.config, "sliding_window", None) is not None
        can_share = self.state.can_share and not slides
        self.min_saved = (CPU_MIN_SAVED if on_cpu else GPU_MIN_SAVED) if can_share else None
        self.can_refill = self.state.can_refill
        self.can_pack = on_cpu and can_share and takes_passes

    def begin(self, prompts: Sequence[Prompt], decoding: Decoding) -> tuple[Any, Tensor, Tensor | None]:
        """Reads prompts, each only once.

        Returns:
            Their state with a row for each, the logits of the next token [B, V], and for the repetition penalty the
            tokens that occur before it [B, V].
        """
        unique = {prompt.id: prompt for prompt in prompts}
        states: list[Any] = []
        logits: list[Tensor] = []
        row_of: dict[str, int] = {}
        for part, state, part_logits in self.read(list(unique.values()), at_once=not self.state.can_join):
            states.append(state)
            logits.append(part_logits)
            row_of |= {prompt.id: len(row_of) + number for number, prompt in enumerate(part)}
        state = states[0] if len(states) == 1 else type(states[0]).join(states)
        next_logits = torch.cat(logits)
        rows = [row_of[prompt.id] for prompt in prompts]
        if rows != list(range(len(unique))):
            order = torch.tensor(rows, device=self.model.device)
            state.select(order)
            next_logits = next_logits[order]
        if decoding.repetition_penalty == 1:
            return state, next_logits, None
        seen = torch.zeros(len(prompts), next_logits.shape[-1], dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            seen[row, list(self.decoder_prefix) if self.is_seq2seq else prompt.ids.astype(np.int64)] = True
        return state, next_logits, seen.to(self.model.device)

    def next_logits(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Sequence[Prompt], Tensor]]:
        """Yields prompts with the logits of their next tokens [prompts, V], and keeps no state."""
        left = {prompt.id: prompt for prompt in prompts}
        segments = list(list_segments(group_by_prefix(prompts, MIN_PREFIX))) if self.can_pack else []
        last_use = {id(segment.parent): number for number, segment in enumerate(segments)}
        begin = 0
        while begin < len(segments):
            end, tokens = begin, 0
            while end < len(segments) and (end == begin or tokens + len(segments[end].ids) <= self.pass_tokens):
                tokens += len(segments[end].ids)
                end += 1
            packed = PackedPass(segments[begin:end])
            part, logits = packed.read(self.model)
            if packed.num_attended != self.model.config.num_hidden_layers:  # other layers would mix the prompts
                self.can_pack = False
                break
            for prompt in part:
                del left[prompt.id]
            yield part, logits
            for segment in segments[:end]:
                if last_use.get(id(segment), 0) < end:  # nothing continues it
                    segment.states.clear()
            begin = end
        if left:
            yield from ((part, logits) for part, _, logits in self.read(list(left.values())))

    def read(
        self, prompts: Sequence[Prompt], *, at_once: bool = False
    ) -> Iterator[tuple[Sequence[Prompt], Any, Tensor]]:
        """Yields prompts of similar lengths, or all at once, with their state and the logits of their next tokens."""
        if at_once:
            ids = [prompt.ids for prompt in prompts]
            yield prompts, *self.state.read(self.model, ids, self.pad_id, self.decoder_prefix)
            return
        no_groups = self.min_saved is None
        group = PrefixGroup(members=list(prompts)) if no_groups else group_by_prefix(prompts, self.min_saved or 0)
        yield from self._read_group(group, None)

    def _read_group(self, group: PrefixGroup, prefix: Any) -> Iterator[tuple[Sequence[Prompt], Any, Tensor]]:
        done = group.length
        longest_first = sorted(group.members, key=lambda prompt: -len(prompt.ids))
        begin = 0
        while begin < len(longest_first):  # within both limits of tokens
            length = len(longest_first[begin].ids)
            count = max(1, min(self.pass_tokens // (length - done), self.kept_tokens // length))
            part = longest_first[begin : begin + count]
            ids = [prompt.ids[done:] for prompt in part]
            yield part, *self.state.read(self.model, ids, self.pad_id, self.decoder_prefix, prefix)
            begin += count
        for inner in group.groups:
            ids = [inner.ids[done : inner.length]]
            state, _ = self.state.read(self.model, ids, self.pad_id, self.decoder_prefix, prefix)
            yield from self._read_group(inner, state)
