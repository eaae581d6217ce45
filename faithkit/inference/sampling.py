"""Which token comes next: penalties, greedy choice, and nucleus sampling that no other row can disturb."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faithkit.inference.decoding import NUCLEUS, Decoding

STRETCH = 128  # scores that `likeliest` takes together
LIKELIEST = 256  # tokens that a nucleus is looked for in first: sorting a whole vocabulary takes longer than the model


def uniforms(decoding: Decoding, prompt_id: str, sample: int) -> NDArray[np.float64]:
    """The random numbers of one completion, one a token: its own stream, whatever else is generated beside it."""
    name = f"{decoding.seed}\n{sample}\n{prompt_id}".encode("utf-8", "surrogatepass")
    key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest())
    return np.random.Generator(np.random.Philox(key=key)).random(decoding.max_new_tokens)


def choose_tokens(
    logits: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None, draws: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The next token of each row [B], and its log-probability under the model's own distribution [B].

    Args:
        logits: Of the next token [B, V].
        counts: Tokens written so far [B].
        seen: Which tokens stand before [B, V]; needed for the repetition penalty alone.
        draws: A uniform random number a row [B]; needed for nucleus sampling alone.
    """
    own = logits.float()
    logits = penalised(own, decoding, eos_id=eos_id, counts=counts, seen=seen)
    if decoding.strategy == NUCLEUS:
        assert draws is not None
        tokens = sample_nucleus(logits / decoding.temperature, decoding.top_p, draws)
    else:
        tokens = logits.argmax(-1)
    chosen = own.gather(1, tokens[:, None])[:, 0]
    return tokens, chosen - own.logsumexp(-1)


def penalised(scores: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None) -> Tensor:
    """Logits or log-probabilities [B, V] under the repetition penalty, and without an end before min_new_tokens.

    Those that are given stay as they are.
    """
    given = scores
    if decoding.repetition_penalty != 1 and seen is not None:
        penalty = decoding.repetition_penalty
        scores = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
    if decoding.min_new_tokens:
        scores = scores.clone() if scores is given else scores
        scores[counts < decoding.min_new_tokens, eos_id] = -torch.inf
    return scores


def likeliest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest of each row of [B, V] and their places [B, count], as `topk` gives them, in a third of its time.

    What is among the highest stands in one of the stretches with the highest maxima, one for each.
    """
    rows, size = scores.shape
    if size < count * STRETCH:
        values, places = scores.topk(count)
        return values, places
    whole = size // STRETCH * STRETCH
    maxima = scores[:, :whole].view(rows, -1, STRETCH).amax(-1)
    if whole < size:
        maxima = torch.cat([maxima, scores[:, whole:].amax(-1, keepdim=True)], dim=1)
    best = maxima.topk(count).indices * STRETCH
    places = (best[:, :, None] + torch.arange(STRETCH, device=scores.device)).flatten(1)
    inside = places < size
    kept = scores.gather(1, places.clamp_max(size - 1)).masked_fill(~inside, -torch.inf)
    values, order = kept.topk(count)
    return values, places.gather(1, order).clamp_max(size - 1)  # beyond it stands nothing that is likely at all


def sample_nucleus(logits: Tensor, top_p: float, draws: Tensor) -> Tensor:
    """Samples each row of [B, V] from its nucleus, by the inverse of the cumulative distribution at `draws` [B]."""
    total = logits.logsumexp(-1, keepdim=True)
    values, tokens = logits.topk(min(LIKELIEST, logits.shape[-1]))
    cumulative = (values - total).exp().double().cumsum(-1)
    if bool((cumulative[:, -1] < top_p).any()):  # a flat row: its nucleus is larger
        values, tokens = logits.sort(descending=True, stable=True)
        cumulative = (values - total).exp().double().cumsum(-1)
    last = (cumulative < top_p).sum(-1, keepdim=True).clamp_max(cumulative.shape[-1] - 1)
    target = draws[:, None] * cumulative.gather(1, last)
    place = torch.minimum((cumulative <= target).sum(-1, keepdim=True), last)
    return tokens.gather(1, place)[:, 0]
