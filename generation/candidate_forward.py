"""All candidates of a batch through the model at once: each context is read a single time.

An encoder-decoder decodes the candidates of a row as one sequence in which each sees itself alone; keys and values of
the context are made once a row. A causal model reads the context and behind it the candidates, which branch off from it
(`faithkit.packing`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from faithkit.packing import Packing
from generation.forward import at_places

ENCODER_FIRST, ENCODER_MEAN, DECODER_FIRST, CONTEXT_LAST = (
    "encoder_first",
    "encoder_mean",
    "decoder_first",
    "context_last",
)
SEQ2SEQ_QUERIES, CAUSAL_QUERIES = (ENCODER_MEAN, ENCODER_FIRST, DECODER_FIRST), (CONTEXT_LAST,)


@dataclass(frozen=True, slots=True)
class Contrast:
    """What an objective needs of a pass.

    Args:
        logits: Of the gold responses' tokens [1, tokens, vocabulary].
        query: What sums the context up [rows, size].
        candidates: The state at the end of each candidate [candidates, size].
    """

    logits: Tensor
    query: Tensor
    candidates: Tensor


def run_candidates(model: Any, batch: Mapping[str, Tensor], query: str) -> Contrast:
    """The pass over a batch of `CandidateEncoder`.

    Args:
        query: Which state sums the context up: of SEQ2SEQ_QUERIES or CAUSAL_QUERIES.
    """
    run = _run_seq2seq if "candidate_owner" in batch else _run_causal
    with at_places(model.get_output_embeddings(), batch["candidate_target_at"]), last_states(model) as seen:
        output = run(model, batch)
    (states,) = seen
    states = states.flatten(0, 1)
    if query in (DECODER_FIRST, CONTEXT_LAST):
        summary = states[batch["candidate_first"]]
    elif query == ENCODER_FIRST:
        summary = output.encoder_last_hidden_state[:, 0]
    else:
        inside = batch["attention_mask"][..., None]
        summary = (output.encoder_last_hidden_state * inside).sum(1) / inside.sum(1)
    return Contrast(output.logits, summary, states[batch["candidate_last"]])


def _run_seq2seq(model: Any, batch: Mapping[str, Tensor]) -> Any:
    with at_positions(model.get_decoder(), batch["candidate_places"]):
        return model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=batch["candidate_ids"],
            decoder_attention_mask=own_bias(batch["candidate_owner"], model.dtype),
            use_cache=False,
        )


def _run_causal(model: Any, batch: Mapping[str, Tensor]) -> Any:
    parts = [[context] for context in batch["context_length"].tolist()]
    for row, length in zip(batch["candidate_row"].tolist(), batch["candidate_length"].tolist(), strict=True):
        parts[row].append(length)
    return model(
        input_ids=batch["candidate_ids"],
        position_ids=batch["candidate_places"],
        packing=Packing.branched(parts, batch["candidate_ids"].device),
        use_cache=False,
    )


def own_bias(owner: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token may look and -inf elsewhere: back to the beginning of its candidate [rows, 1, width, width].

    Args:
        owner: Number of the candidate that each token is of [rows, width]; padding is one too, so that it sees itself.
    """
    seen = (owner[:, :, None] == owner[:, None, :]).tril()
    return torch.zeros(seen.shape, dtype=dtype, device=owner.device).masked_fill_(~seen, -torch.inf)[:, None]


@contextmanager
def last_states(model: Any) -> Iterator[list[Tensor]]:
    """What the last layer of the decoder, or of a causal model, gives behind its norm [rows, width, size].

    Not what the head is given: T5 scales that where it ties its embeddings.
    """
    seen: list[Tensor] = []
    hook = model.get_decoder().register_forward_hook(lambda _, __, output: seen.append(output.last_hidden_state))
    try:
        yield seen
    finally:
        hook.remove()


def takes_candidates(model: Any) -> bool:
    """Whether the decoder can read candidates one behind the other: relative positions, or such as can be set."""
    decoder = model.get_decoder()
    relative = any(name.endswith("relative_attention_bias.weight") for name, _ in decoder.named_parameters())
    return relative or hasattr(decoder, "embed_positions")


@contextmanager
def at_positions(decoder: Any, places: Tensor) -> Iterator[None]:
    """A decoder with absolute positions, which counts them through, has these [rows, width]; others need nothing.

    A hook, because the decoders of this kind take no positions.
    """
    if not hasattr(decoder, "embed_positions"):
        yield
        return
    every = torch.arange(int(places.max()) + 1, device=places.device)
    hooks = [
        decoder.embed_positions.register_forward_pre_hook(
            lambda _, inputs, options: (inputs, {**options, "position_ids": every}), with_kwargs=True
        ),
        decoder.embed_positions.register_forward_hook(lambda _, __, output: output.view(len(every), -1)[places]),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
