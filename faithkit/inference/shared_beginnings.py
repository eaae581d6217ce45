"""Finds the beginnings that prompts share, so that each is read once: an instruction, examples, one conversation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from faithkit.inference.decoding import Prompt

LEAST = 16  # tokens that a shared beginning has beyond the one that it goes on from


@dataclass(slots=True)
class Shared:
    """Prompts that begin with the same tokens; at least one token of each comes behind them.

    Args:
        length: Tokens of the beginning, counted from the prompts' first.
        alone: Prompts that share no more with another one.
        groups: Those that do.
    """

    length: int = 0
    alone: list[Prompt] = field(default_factory=list)
    groups: list["Shared"] = field(default_factory=list)

    def prompts(self) -> list[Prompt]:
        """All prompts with this beginning."""
        return [*self.alone, *(prompt for group in self.groups for prompt in group.prompts())]


def find_shared(prompts: Sequence[Prompt], worth: int) -> Shared:
    """Puts prompts into groups, and these into smaller ones, by what they share.

    Args:
        worth: Tokens that a group has to save: to read its beginning apart is one more pass through the model.
    """
    ordered = sorted(prompts, key=lambda prompt: prompt.ids.astype(">u4").tobytes())
    common = [_common_length(one.ids, other.ids) for one, other in pairwise(ordered)]
    whole = Shared()
    stretches = [(0, len(ordered), whole)]  # places in `ordered`, and what they are known to share
    while stretches:
        begin, end, shared = stretches.pop()
        if end - begin < 2:
            shared.alone.extend(ordered[begin:end])
            continue
        length = min(common[begin : end - 1])
        more = length - shared.length
        if more >= LEAST and more * (end - begin - 1) >= worth:
            inner = Shared(length)
            shared.groups.append(inner)
            shared = inner
        cuts = [place + 1 for place in range(begin, end - 1) if common[place] == length]
        stretches += [(first, last, shared) for first, last in pairwise([begin, *cuts, end])]
    return whole


def _common_length(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Counts the tokens that both begin with; the last one of either is never among them."""
    most = min(len(one), len(other)) - 1
    differ = np.flatnonzero(one[:most] != other[:most])
    return int(differ[0]) if len(differ) else most
