"""InfoNCE: the model also learns to distinguish the gold response from unfaithful responses.

All candidate responses of a batch run through the model in one pass, with each context encoded once. An encoder-decoder
decodes the candidates of a row as one sequence in which each attends only to itself. A causal model reads the context
followed by the candidates, which branch off from it (`faithkit.fast.Packing`). The batches are those of
`data_modules.encoding.candidate_encoder`.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from data_modules.encoding.candidate_encoder import CandidateEncoder
from data_modules.encoding.encoder import Encoder, Ragged
from data_modules.encoding.sequence_layout import CAUSAL
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.errors import UserError
from faithkit.fast import Packing
from faithkit.settings.check import options
from faithkit.settings.types import Conflict, NonNegativeInt, OneOf, Positive
from faithkit.training.language_model import at_places, token_mean
from generation.objectives.objective import Objective, ObjectiveOptions, Step

# Of both kinds of models the first is the default.
ENCODER_MEAN, FIRST_TOKEN, DECODER_FIRST = SEQ2SEQ_QUERIES = ("encoder_mean", "first_token", "decoder_first")
(CONTEXT_LAST,) = CAUSAL_QUERIES = ("context_last",)
NONE, LINEAR, MLP = "none", "linear", "mlp"
ALL = "all"  # negatives of the other rows of a batch


@options("objective")
class InfoNceOptions(ObjectiveOptions):
    """Options of `objective=infonce`.

    Args:
        weight: Of the contrastive loss, where the likelihood has 1.
        temperature: Divides the scores; below 1 sharpens the choice.
        query: The context's summary, which is compared with the candidates: encoder_mean, first_token or
            decoder_first; for causal models context_last. None is the first of these that the model has.
        num_negatives: Of a response, at most.
        projection: Of the query before it is compared: linear and mlp are trained, none compares it as it is, as
            FaithDial's release does.
        in_batch: True makes the gold responses of the batch's other rows negatives too; `all` their negatives besides,
            as FaithDial's release does.
    """

    weight: Positive
    temperature: Positive
    query: Annotated[Any, OneOf((*SEQ2SEQ_QUERIES, *CAUSAL_QUERIES, None))]
    num_negatives: NonNegativeInt
    projection: Annotated[str, OneOf((NONE, LINEAR, MLP))] = LINEAR
    in_batch: Annotated[Any, OneOf((False, True, ALL))] = False

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: not s.in_batch and s.num_negatives < 1,
            "objective.num_negatives is {s.num_negatives}",
            "use 1 or more; with objective.in_batch=true 0 is possible",
        ),
    )


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


class InfoNce(Objective):
    """Adds to the likelihood the cross-entropy of choosing the gold response among candidates.

    van den Oord et al. 2018, "Representation Learning with Contrastive Predictive Coding", as FaithDial (Dziri et al.
    2022) trains generators. Use it when there are responses that were not to be given: FaithDial's originals, or made
    ones (`data.negatives`). Contexts are read once for all candidates of a row.

        s_k = <P(q), h_k> / (temperature * sqrt(d))       q: the context's summary, h_k: the state at candidate k's end
                                                          P: a trained matrix, two layers, or q itself (`projection`)
        L = L_mle + weight * mean over rows of ( logsumexp_k s_k - s_gold )

    Rows without negatives have no contrastive part.

    | related | differs in | use it when |
    | --- | --- | --- |
    | `Mle` | no negatives | there are none, or a step must be as cheap as can be |
    | `LossTruncation` | leaves responses out in place of contrasting them | some gold responses are unsupported |
    | `control=ctrl` | tags responses, and asks for the tag when decoding | answers shall be steered later |

    Example:
        >>> import torch
        >>> from generation.objectives.infonce import contrastive_losses
        >>> scores = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, -torch.inf]])  # two rows, the gold response first
        >>> [round(loss, 3) for loss in contrastive_losses(scores).tolist()]
        [0.408, 2.127]

    On the command line: `faithkit train model=t5 objective=infonce data=faithdial`.

    Args:
        options: Those of `InfoNceOptions`, by name.
    """

    options: InfoNceOptions
    projection: torch.nn.Module

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.query = self.options.query

    def encoder(self, encoder: Encoder, turns: TurnEncoder) -> Encoder:
        causal = turns.layout.kind == CAUSAL
        if causal and not turns.is_packed:
            problem = "objective=infonce with model.packed=false: packed, a context is read once for all candidates"
            raise UserError(problem, hint="set model.packed=true (and not fast=false), or choose another objective")
        known = CAUSAL_QUERIES if causal else SEQ2SEQ_QUERIES
        if self.query is not None and self.query not in known:
            kind = "a causal model" if causal else "an encoder-decoder"
            hint = f"use {', '.join(SEQ2SEQ_QUERIES)} for an encoder-decoder, "
            hint += f"{CAUSAL_QUERIES[0]} for a causal model, or null"
            raise UserError(f"objective.query={self.query} does not go with {kind}", hint=hint)
        self.query = self.query or known[0]
        return CandidateEncoder(encoder, turns, self.options.num_negatives)

    def set_up(self, model: Any, seed: int) -> None:
        if model.config.is_encoder_decoder:  # whose decoder reads candidates one behind the other
            decoder = model.get_decoder()
            relative = any(name.endswith("relative_attention_bias.weight") for name, _ in decoder.named_parameters())
            if not relative and not hasattr(decoder, "embed_positions"):
                problem = f"objective=infonce does not go with {type(model).__name__}: its positions cannot be set"
                raise UserError(problem, hint="use T5 or BART, or choose another objective")
        size = model.get_output_embeddings().in_features
        generator = torch.Generator().manual_seed(seed)

        def make_layer() -> torch.nn.Linear:
            layer = torch.nn.Linear(size, size, bias=False)
            with torch.no_grad():
                layer.weight.copy_(torch.empty(size, size).normal_(std=size**-0.5, generator=generator))
            return layer

        if self.options.projection == LINEAR:
            self.projection = make_layer()
        elif self.options.projection == MLP:
            self.projection = torch.nn.Sequential(make_layer(), torch.nn.ReLU(), make_layer())
        else:
            self.projection = torch.nn.Identity()

    def check(self, data: Any) -> None:
        columns = [subset.encoded.columns["negative_length"] for subset in data.subsets["train"]]
        if not self.options.in_batch and columns and not any(len(c.values) for c in columns if isinstance(c, Ragged)):
            hint = "set data.negatives, for example data.negatives={kinds: [verbatim, other], num: 4}"
            raise UserError("objective=infonce, and no training example has negatives", hint=hint)

    def run(self, model: Any, batch: Mapping[str, Tensor]) -> Contrast:
        """Runs a batch of `CandidateEncoder`."""
        assert self.query is not None, "the encoder is asked for first"
        decoder = model.get_decoder()
        with at_places(model.get_output_embeddings(), batch["candidate_target_at"]), last_states(model) as seen:
            if "candidate_owner" in batch:
                # A token attends back to its candidate's beginning; padding has a number too, so no row is empty.
                owner = batch["candidate_owner"]
                visible = (owner[:, :, None] == owner[:, None, :]).tril()
                mask = torch.zeros(visible.shape, dtype=model.dtype, device=owner.device)
                mask = mask.masked_fill_(~visible, -torch.inf)[:, None]
                with at_positions(decoder, batch["candidate_places"]):
                    output = model(
                        input_ids=batch["input_ids"],
                        attention_mask=batch["attention_mask"],
                        decoder_input_ids=batch["candidate_ids"],
                        decoder_attention_mask=mask,
                        use_cache=False,
                    )
            else:
                parts = [[context] for context in batch["context_length"].tolist()]
                lengths = batch["candidate_length"].tolist()
                for row, length in zip(batch["candidate_row"].tolist(), lengths, strict=True):
                    parts[row].append(length)
                output = model(
                    input_ids=batch["candidate_ids"],
                    position_ids=batch["candidate_places"],
                    packing=Packing.branched(parts, batch["candidate_ids"].device),
                    use_cache=False,
                )
        (states,) = seen
        states = states.flatten(0, 1)
        if self.query in (DECODER_FIRST, CONTEXT_LAST):
            summary = states[batch["candidate_first"]]
        elif self.query == FIRST_TOKEN:
            summary = output.encoder_last_hidden_state[:, 0]
        else:
            inside = batch["attention_mask"][..., None]
            summary = (output.encoder_last_hidden_state * inside).sum(1) / inside.sum(1)
        return Contrast(output.logits, summary, states[batch["candidate_last"]])

    def forward(self, step: Step) -> Tensor:
        real, row = step.real, step.batch["candidate_row"]
        with torch.autocast(step.losses.device.type, enabled=False):
            weight = next(self.projection.parameters(), step.losses)
            query = self.projection(step.output.query.to(weight.dtype)).float()
            query = query / (self.options.temperature * math.sqrt(query.shape[-1]))
            candidates = step.output.candidates.float()
            scores = by_row((query[row] * candidates).sum(-1), row, len(real))  # [rows, most candidates of a row]
            if self.options.in_batch:
                scores = torch.cat([scores, self._in_batch_scores(query, candidates, step)], dim=1)
        counted = real & (scores[:, 1:] > -torch.inf).any(1)  # rows that have a negative
        contrast = token_mean(contrastive_losses(scores), counted, step.processes)
        right = token_mean((scores.argmax(1) == 0).float(), counted, step.processes)
        step.log("contrast", contrast)
        step.log("contrast_accuracy", right)
        return token_mean(step.losses, real[step.batch["target_row"]], step.processes) + self.options.weight * contrast

    def _in_batch_scores(self, query: Tensor, candidates: Tensor, step: Step) -> Tensor:
        """Scores each row's query against the candidates of all other rows, those of other processes too.

        Args:
            query: [rows, size].
            candidates: Row by row, each row's gold response first [candidates, size].

        Returns:
            [rows, processes * share]; -inf for the candidates of the row and for padding.
        """
        row, real, processes = step.batch["candidate_row"], step.real, step.processes
        rows = torch.arange(len(real), device=row.device)
        if self.options.in_batch == ALL:
            chosen, owner = candidates, row
            share = int(processes.gather(torch.tensor([len(row)], device=row.device)).max())
        else:
            chosen, owner = candidates[torch.searchsorted(row, rows)], rows  # each row's first candidate
            share = -(-int(step.batch["num_rows"]) // processes.world_size)  # rows of the largest share

        # This process's candidates, filled up so that every process gathers as many [share, size].
        filling = share - len(owner)
        all_candidates = processes.gather(torch.nn.functional.pad(chosen, (0, 0, 0, filling)), with_gradients=True)
        is_real = processes.gather(torch.nn.functional.pad(real[owner], (0, filling)).float()).bool()
        is_negative = is_real[None].repeat(len(real), 1, 1)  # [rows, processes, share]
        is_negative[:, processes.rank, : len(owner)] &= (
            owner != rows[:, None]
        )  # candidates of the row are already scored

        scores = query @ all_candidates.flatten(0, 1).T
        return scores.masked_fill(~is_negative.flatten(1), -torch.inf)


def contrastive_losses(scores: Tensor) -> Tensor:
    """Gives each row's cross-entropy of choosing its first candidate [rows].

    Args:
        scores: The gold response's, then those of the negatives, -inf where a row has fewer [rows, candidates].
    """
    return scores.logsumexp(1) - scores[:, 0]


def by_row(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Arranges the values of candidates [candidates] by row, padded with -inf [rows, maximum per row].

    Args:
        row: The row of each value, ascending [candidates].
    """
    count = torch.bincount(row, minlength=num_rows)
    place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]  # within its row
    return values.new_full((num_rows, int(count.max())), -torch.inf).index_put((row, place), values)
