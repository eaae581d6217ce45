"""Runs all candidate responses of a batch through a model in one pass, with each context encoded once.

An encoder-decoder decodes the candidates of a row as one sequence in which each attends only to itself. A causal model
reads the context followed by the candidates, which branch off from it (`faithkit.packing`). The batches are those of
`data_modules.encoding.candidate_encoder`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from faithkit.packing import Packing
from faithkit.training.language_model import at_places
from generation.objectives.options import CAUSAL_QUERIES, SEQ2SEQ_QUERIES

ENCODER_MEAN, ENCODER_FIRST, DECODER_FIRST = SEQ2SEQ_QUERIES
(CONTEXT_LAST,) = CAUSAL_QUERIES


@dataclass(frozen=True, slots=True)
class Contrast:
    """The outputs of a pass that a contrastive objective needs.

    Args:
        logits: Of the gold responses' tokens [1, tokens, vocabulary].
        query: The summary of each context [rows, size].
        candidates: The state at the end of each candidate [candidates, size].
    """

    logits: Tensor
    query: Tensor
    candidates: Tensor


def run_candidates(model: Any, batch: Mapping[str, Tensor], query: str) -> Contrast:
    """Runs a batch of `CandidateEncoder`.

    Args:
        query: The state that represents the context: one of SEQ2SEQ_QUERIES or CAUSAL_QUERIES.
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
            decoder_attention_mask=block_diagonal_bias(batch["candidate_owner"], model.dtype),
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


def block_diagonal_bias(owner: Tensor, dtype: torch.dtype) -> Tensor:
    """Makes the additive mask under which a token attends back to its candidate's beginning [rows, 1, width, width].

    Args:
        owner: Number of each token's candidate [rows, width]; padding has one too, so that no row of the mask is empty.
    """
    seen = (owner[:, :, None] == owner[:, None, :]).tril()
    return torch.zeros(seen.shape, dtype=dtype, device=owner.device).masked_fill_(~seen, -torch.inf)[:, None]


@contextmanager
def last_states(model: Any) -> Iterator[list[Tensor]]:
    """Records the decoder's last hidden states after its final norm [rows, width, size].

    They differ from the head's input, which T5 scales with tied embeddings.
    """
    seen: list[Tensor] = []
    hook = model.get_decoder().register_forward_hook(lambda _, __, output: seen.append(output.last_hidden_state))
    try:
        yield seen
    finally:
        hook.remove()


def takes_candidates(model: Any) -> bool:
    """Returns whether a decoder can read concatenated candidates: its positions are relative or can be set."""
    decoder = model.get_decoder()
    relative = any(name.endswith("relative_attention_bias.weight") for name, _ in decoder.named_parameters())
    return relative or hasattr(decoder, "embed_positions")


@contextmanager
def at_positions(decoder: Any, places: Tensor) -> Iterator[None]:
    """Sets the positions of a decoder with absolute positions [rows, width]; other decoders need none.

    Uses hooks, because such decoders (BART's) do not take positions as an argument.
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
