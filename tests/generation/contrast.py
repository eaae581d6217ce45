"""The contrastive objective worked out the long way: each candidate by itself through the whole model."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data_modules.encoding.candidate_encoder import CandidateEncoder
from faithkit.training.language_model import OneProcess, token_losses
from generation.objectives.infonce import InfoNce
from generation.objectives.objective import Step
from tests.generation.test_weights import FAMILIES, build, row_of

NEGATIVES = [("it is small", "the king wrote a book"), ("no",), (), ("they like music", "it is long it is long", "yes")]
ROWS = [replace(row_of(n), negatives=negatives) for n, negatives in enumerate(NEGATIVES, 1)]


def objective_of(**values: Any) -> InfoNce:
    return InfoNce(**{"weight": 0.1, "temperature": 0.7, "query": None, "num_negatives": 4, **values})


def prepared(folder: Path, family: str, **values: Any) -> tuple[Any, InfoNce, CandidateEncoder]:
    """A model, the objective with its projection, and what makes their batches."""
    model, turns = build(folder, FAMILIES[family], packed=True)
    objective = objective_of(**values)
    encoder = objective.encoder(turns, turns)
    assert isinstance(encoder, CandidateEncoder)
    objective.set_up(model, 0)
    return model, objective, encoder


def batch_of(encoder: CandidateEncoder, rows: Any = ROWS, padding: tuple[int, ...] = ()) -> dict[str, Tensor]:
    batch = encoder.collate(encoder.encode(rows, Counter()))
    tensors = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in batch.items()}
    index = torch.arange(len(rows))
    index[list(padding)] = -1
    return {**tensors, "index": index, "num_rows": torch.tensor(len(rows) - len(padding))}


def loss_of(model: Any, objective: InfoNce, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss as training makes it, and what it logs."""
    logged: dict[str, Tensor] = {}
    output = objective.run(model, batch)
    losses = token_losses(output.logits, batch["target"])
    step = Step(batch=batch, output=output, losses=losses, processes=OneProcess(), log=logged.__setitem__)
    return objective(step), logged


def the_long_way(model: Any, objective: InfoNce, encoder: CandidateEncoder, rows: Any = ROWS) -> Tensor:
    """The loss of plain passes, one for each candidate, contexts read anew for each."""
    columns: dict[str, Any] = encoder.encode(rows, Counter())
    losses, queries, ends = [], [], []
    for place in range(len(rows)):
        context, response, negatives = (
            torch.tensor(columns[name].row(place).tolist(), dtype=torch.long)
            for name in ("context", "response", "negative")
        )
        ends.append([])
        candidates = [response, *negatives.split(columns["negative_length"].row(place).tolist())]
        for number, candidate in enumerate(candidates):
            logits, query, end = one_pass(model, encoder, context, candidate, objective.query)
            ends[-1].append(end)
            if number == 0:
                losses.append(token_losses(logits[None], response))
                queries.append(query)
    contrasts = []
    for place, (query, own) in enumerate(zip(queries, ends, strict=True)):
        taken = {False: 0, True: 1, "all": None}[objective.options.in_batch]  # of each other row's candidates
        others = [state for n, other in enumerate(ends) if n != place for state in other[:taken]]
        if own[1:] + others:
            states = torch.stack(own + others)
            scores = states @ (objective.projection.weight @ query) / len(query) ** 0.5 / objective.options.temperature
            contrasts.append(-scores.log_softmax(0)[0])
    return torch.cat(losses).mean() + objective.options.weight * torch.stack(contrasts).mean()


def one_pass(
    model: Any, encoder: CandidateEncoder, context: Tensor, candidate: Tensor, query: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the candidate's tokens, the query, and the state at the candidate's end."""
    prefix = encoder.turns.decoder_prefix
    if not prefix:
        ids = torch.cat([context, candidate])
        output = model(input_ids=ids[None], output_hidden_states=True, use_cache=False)
        states, first = output.hidden_states[-1][0], len(context) - 1
        return output.logits[0, first : first + len(candidate)], states[first], states[-1]
    ids = torch.cat([torch.tensor(prefix), candidate])
    output = model(input_ids=context[None], decoder_input_ids=ids[None], output_hidden_states=True, use_cache=False)
    states, encoded = output.decoder_hidden_states[-1][0], output.encoder_last_hidden_state[0]
    summary = {"first_token": encoded[0], "encoder_mean": encoded.mean(0), "decoder_first": states[0]}[query or ""]
    return output.logits[0, : len(candidate)], summary, states[-1]
