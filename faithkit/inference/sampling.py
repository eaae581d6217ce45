"""Chooses the next token: penalties, greedy choice, and nucleus sampling that is independent of other rows."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faithkit.inference.decoding import NUCLEUS, Decoding, seed_of

LIKELIEST = 256  # tokens searched for a nucleus first: sorting a whole vocabulary takes longer than the model


def uniforms(decoding: Decoding, prompt_id: str, sample: int) -> NDArray[np.float64]:
    """Draws the random numbers of one completion, one for each token, from a stream keyed by seed, sample and id."""
    key = seed_of(decoding.seed, sample, prompt_id, size=16)
    return np.random.Generator(np.random.Philox(key=key)).random(decoding.max_new_tokens)


def choose_tokens(
    logits: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None, draws: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Chooses the next token of each row [B]; also returns its log-probability under the unmodified distribution [B].

    Args:
        logits: Of the next token [B, V].
        counts: Tokens written so far [B].
        seen: The tokens that occur before it [B, V]; for the repetition penalty.
        draws: A uniform random number for each row [B]; for nucleus sampling.
    """
    unmodified = logits.float()
    logits = penalised(unmodified, decoding, eos_id=eos_id, counts=counts, seen=seen)
    if decoding.strategy == NUCLEUS:
        assert draws is not None
        tokens = sample_nucleus(logits / decoding.temperature, decoding.top_p, draws)
    else:
        tokens = logits.argmax(-1)
    chosen = unmodified.gather(1, tokens[:, None])[:, 0]
    return tokens, chosen - unmodified.logsumexp(-1)


def penalised(scores: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None) -> Tensor:
    """Applies the repetition penalty to logits or log-probabilities [B, V] and forbids the end before min_new_tokens.

    The input is not changed.
    """
    given = scores
    if decoding.repetition_penalty != 1 and seen is not None:
        penalty = decoding.repetition_penalty
        scores = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
    if decoding.min_new_tokens:
        scores = scores.clone() if scores is given else scores
        scores[counts < decoding.min_new_tokens, eos_id] = -torch.inf
    return scores


def sample_nucleus(logits: Tensor, top_p: float, draws: Tensor) -> Tensor:
    """Samples each row of [B, V] from its nucleus: the inverse of the cumulative distribution at `draws` [B].

    The nucleus is the smallest set of likeliest tokens that reaches `top_p` (Holtzman et al. 2020).
    """
    total = logits.logsumexp(-1, keepdim=True)
    values, tokens = logits.topk(min(LIKELIEST, logits.shape[-1]))
    cumulative = (values - total).exp().double().cumsum(-1)
    if bool((cumulative[:, -1] < top_p).any()):  # a distribution is so flat that its nucleus is larger
        values, tokens = logits.sort(descending=True, stable=True)
        cumulative = (values - total).exp().double().cumsum(-1)
    last = (cumulative < top_p).sum(-1, keepdim=True).clamp_max(cumulative.shape[-1] - 1)  # of the nucleus [B, 1]
    target = draws[:, None] * cumulative.gather(1, last)
    place = torch.minimum((cumulative <= target).sum(-1, keepdim=True), last)
    return tokens.gather(1, place)[:, 0]
