"""InfoNCE (van den Oord et al. 2018, "Representation Learning with Contrastive Predictive Coding"), as in FaithDial.

Beside writing the gold response, the model learns to tell it from responses that are not faithful: what sums the
context up shall be nearer to the end of the gold response than to theirs.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from data_modules.encoding.candidate_encoder import CandidateEncoder
from data_modules.encoding.pairs import Encoder
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.turn_layout import CAUSAL
from data_modules.encoding.turns import TurnEncoder
from faithkit.errors import UserError
from generation.candidate_forward import CAUSAL_QUERIES, SEQ2SEQ_QUERIES, Contrast, run_candidates, takes_candidates
from generation.objectives.objective import Objective, Step, token_mean


class InfoNce(Objective):
    """Likelihood, and `weight` times the cross-entropy of choosing the gold response among the candidates.

    A candidate's score is the dot product of the projected query and the state at its end, over the root of their size
    and the temperature. Rows without negatives count for nothing in it.

    Args:
        weight: Of the contrastive part.
        temperature: Below 1 sharpens the choice.
        query: What sums the context up: encoder_mean, encoder_first or decoder_first; for causal models context_last.
            None is the first of these that the model has.
        num_negatives: Of a row at most.
        in_batch: The gold responses of the batch's other rows are negatives too.
    """

    projection: torch.nn.Linear

    def __init__(
        self, *, weight: float, temperature: float, query: str | None, num_negatives: int, in_batch: bool = False
    ):
        super().__init__()
        for name, value in (("weight", weight), ("temperature", temperature)):
            if not (value > 0 and math.isfinite(value)):
                raise UserError(f"objective.{name} is {value}", hint="use a number above 0")
        if num_negatives < (0 if in_batch else 1):
            hint = "use 1 or more; with objective.in_batch=true 0 is possible"
            raise UserError(f"objective.num_negatives is {num_negatives}", hint=hint)
        if query not in (None, *SEQ2SEQ_QUERIES, *CAUSAL_QUERIES):
            raise UserError(f"objective.query is {query!r}", hint=_queries())
        self.weight, self.temperature, self.query = weight, temperature, query
        self.num_negatives, self.in_batch = num_negatives, in_batch

    def encoder(self, encoder: Encoder, turns: TurnEncoder) -> Encoder:
        causal = turns.layout.kind == CAUSAL
        if causal and not turns.is_packed:
            problem = "objective=infonce with model.packed=false: packed, a context is read once for all candidates"
            raise UserError(problem, hint="set model.packed=true, or choose another objective")
        known = CAUSAL_QUERIES if causal else SEQ2SEQ_QUERIES
        if self.query is not None and self.query not in known:
            kind = "a causal model" if causal else "an encoder-decoder"
            raise UserError(f"objective.query={self.query} does not go with {kind}", hint=_queries())
        self.query = self.query or known[0]
        return CandidateEncoder(encoder, turns, self.num_negatives)

    def set_up(self, model: Any, seed: int) -> None:
        if model.config.is_encoder_decoder and not takes_candidates(model):
            problem = f"objective=infonce does not go with {type(model).__name__}: its positions cannot be set"
            raise UserError(problem, hint="use T5 or BART, or choose another objective")
        size = model.get_output_embeddings().in_features
        self.projection = torch.nn.Linear(size, size, bias=False)
        with torch.no_grad():
            start = torch.empty(size, size)
            start.normal_(std=size**-0.5, generator=torch.Generator().manual_seed(seed))
            self.projection.weight.copy_(start)

    def check(self, data: Any) -> None:
        columns = [subset.encoded.columns["negative_length"] for subset in data.subsets["train"]]
        if not self.in_batch and columns and not any(len(c.values) for c in columns if isinstance(c, Ragged)):
            hint = "set data.negatives, for example data.negatives={kinds: [verbatim, other], num: 4}"
            raise UserError("objective=infonce, and no training example has negatives", hint=hint)

    def run(self, model: Any, batch: Mapping[str, Tensor]) -> Contrast:
        assert self.query is not None, "the encoder is asked for first"
        return run_candidates(model, batch, self.query)

    def forward(self, step: Step) -> Tensor:
        real, row = step.real, step.batch["candidate_row"]
        with torch.autocast(step.losses.device.type, enabled=False):
            query = self.projection(step.output.query.to(self.projection.weight.dtype)).float()
            query = query / (self.temperature * math.sqrt(query.shape[-1]))
            candidates = step.output.candidates.float()
            scores = by_row((query[row] * candidates).sum(-1), row, len(real))
            if self.in_batch:
                scores = torch.cat([scores, self._others(query, candidates, step)], dim=1)
        losses = scores.logsumexp(1) - scores[:, 0]
        counted = real & (scores[:, 1:] > -torch.inf).any(1)
        contrast = token_mean(losses, counted, step.processes)
        right = token_mean((scores.argmax(1) == 0).float(), counted, step.processes)
        step.log("contrast", contrast)
        step.log("contrast_accuracy", right)
        return token_mean(step.losses, real[step.batch["target_row"]], step.processes) + self.weight * contrast

    def _others(self, query: Tensor, candidates: Tensor, step: Step) -> Tensor:
        """Scores of the gold responses of the other rows of the whole batch [rows, rows of all processes]."""
        row, real = step.batch["candidate_row"], step.real
        share = -(-int(step.batch["num_rows"]) // step.processes.world_size)
        gold = torch.searchsorted(row, torch.arange(len(real), device=row.device))
        filled = torch.nn.functional.pad(candidates[gold], (0, 0, 0, share - len(gold)))
        there = torch.nn.functional.pad(real, (0, share - len(gold)))
        everyone = step.processes.gather(filled, with_gradients=True)  # [processes, share, size]
        seen = step.processes.gather(there.float()).bool()[None].repeat(len(real), 1, 1)
        seen[torch.arange(len(real)), step.processes.rank, torch.arange(len(real))] = False
        scores = query @ everyone.flatten(0, 1).T
        return scores.masked_fill(~seen.flatten(1), -torch.inf)


def by_row(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Values of candidates [candidates], which stand row by row, as a rectangle filled up with -inf [rows, most]."""
    count = torch.bincount(row, minlength=num_rows)
    step = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    return values.new_full((num_rows, int(count.max())), -torch.inf).index_put((row, step), values)


def _queries() -> str:
    return f"use {', '.join(SEQ2SEQ_QUERIES)} for an encoder-decoder, {CAUSAL_QUERIES[0]} for a causal model, or null"
