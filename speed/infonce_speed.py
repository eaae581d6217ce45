"""Compares our step of the contrastive objective with N + 1 passes that each read the context again.

Both have the same weights, batch, precision and loss, go forward and backward, and compute logits of the gold responses
alone.

Needs: nothing more than faithkit, and `flan-t5-small` (fetched once).

python -m speed.infonce_speed
"""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data_modules.encoding.candidate_encoder import CandidateEncoder
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.turn_layout import CAUSAL, SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.turns import TurnEncoder
from faithkit.packing import use_packed_attention
from faithkit.training.language_model import at_places, token_losses
from generation.candidate_forward import Contrast, last_states
from generation.objectives.infonce import InfoNce
from generation.objectives.objective import Step
from speed.measure import Ratio, alternate, report, table

ROWS, CONTEXT, RESPONSE = 8, (100, 12), (25, 5)  # rows of a batch; tokens: mean and spread
WEIGHTS = "flan-t5-small"
MODELS = {
    "T5": (SEQ2SEQ, f"`{WEIGHTS}`, 8 + 8 layers of 512"),
    "Llama": (CAUSAL, "A random Llama of 6 layers of 384"),
}


class OneProcess:
    """Stands for the processes of a training on one machine: there is only this one."""

    world_size, rank = 1, 0

    def total(self, count: Tensor) -> Tensor:
        return count.clamp(min=1)

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        return values[None]


def main() -> None:
    """Times both ways in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--negatives", type=int, nargs="+", default=[1, 4, 8])
    options = parser.parse_args()
    torch.set_num_threads(1)
    header = ["negatives", "ours, s a step", "naive, s a step", "faster", "least work", "of that"]
    for name in options.models:
        kind, described = MODELS[name]
        rows = [compare(kind, num, options.rounds) for num in options.negatives]
        body = (
            f"{described}; {ROWS} rows, contexts of {CONTEXT[0]} tokens (spread {CONTEXT[1]}), responses of "
            f"{RESPONSE[0]} (spread {RESPONSE[1]}); fp32, no dropout. Naive: N + 1 padded passes of plain "
            "transformers, each with the contexts. Least work: the multiplications of the naive way over those that "
            "no exact way can do without (each context read once, nothing padded)."
        )
        report(f"InfoNCE: {name}", f"{body}\n\n{table(header, rows)}")


def compare(kind: str, num: int, num_rounds: int) -> list[Any]:
    """Makes a line of the table."""
    model, plain, turns = build(kind)
    objective = InfoNce(weight=0.1, temperature=1.0, query=None, num_negatives=num)
    encoder = objective.encoder(turns, turns)
    assert isinstance(encoder, CandidateEncoder)
    objective.set_up(model, 0)
    columns = random_columns(num, len(turns.tokenizer) - 200)
    ours, naive = step_of(encoder, columns), passes_of(encoder, columns)

    def run_ours() -> Tensor:
        output = objective.run(model, ours)
        return train(model, objective, loss_of(model, objective, ours, output))

    def run_naive() -> Tensor:
        return train(plain, objective, loss_of(plain, objective, ours, naive_output(plain, naive, ours)))

    difference = abs(float(run_ours() - run_naive()))
    assert difference < 1e-4, f"the two ways differ by {difference}"
    taken = alternate({"ours": run_ours, "naive": run_naive}, num_rounds)
    ratio, limit = Ratio.of(taken["naive"], taken["ours"]), least_work(model, columns)
    seconds = [f"{np.median(taken[side]):.2f}" for side in ("ours", "naive")]
    return [num, *seconds, ratio, f"{limit:.2f}x", f"{ratio.median / limit:.0%}"]


def build(kind: str) -> tuple[Any, Any, TurnEncoder]:
    """Builds a model for our way, a copy for the naive way, and the encoder of turns."""
    import copy

    from transformers import LlamaConfig, LlamaForCausalLM

    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.weights.resolve import resolve
    from generation.weights import load_generator

    layout = TurnLayout(kind=kind, max_length=512, max_response_length=64)
    tokenizer = load_tokenizer(resolve(WEIGHTS))
    new = add_markers(tokenizer, layout)
    if kind == SEQ2SEQ:
        model = load_generator(WEIGHTS, "seq2seq", tokenizer=tokenizer, new_tokens=new, dropout=0.0)
    else:
        torch.manual_seed(0)
        heads: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 6}
        size: dict[str, Any] = {"hidden_size": 384, "intermediate_size": 1024, "vocab_size": len(tokenizer)}
        model = LlamaForCausalLM(LlamaConfig(**heads, **size))
    twin = copy.deepcopy(model)
    if kind == CAUSAL:
        use_packed_attention(model)
    return model.train(), twin.train(), TurnEncoder(tokenizer, layout)


def random_columns(num: int, vocabulary: int) -> dict[str, Any]:
    """Makes the columns of a batch of random tokens."""
    rng = np.random.default_rng(0)

    def ragged(count: int, mean: int, spread: int) -> Ragged:
        sizes = rng.normal(mean, spread, count).round().clip(2).astype(int)
        return Ragged.from_lists([rng.integers(5, vocabulary, size).tolist() for size in sizes])

    context, response, negative = (
        ragged(n, *s) for n, s in ((ROWS, CONTEXT), (ROWS, RESPONSE), (ROWS * num, RESPONSE))
    )
    lengths = Ragged(negative.lengths.astype(np.int32), np.arange(ROWS + 1) * num)
    joined = Ragged(negative.values, negative.offsets[::num])
    return {"context": context, "response": response, "negative": joined, "negative_length": lengths}


def step_of(encoder: CandidateEncoder, columns: dict[str, Any]) -> dict[str, Tensor]:
    batch = {name: torch.from_numpy(np.ascontiguousarray(c)) for name, c in encoder.collate(columns).items()}
    return {**batch, "index": torch.arange(ROWS), "num_rows": torch.tensor(ROWS)}


def passes_of(encoder: CandidateEncoder, columns: dict[str, Any]) -> list[dict[str, Tensor]]:
    """Makes a batch of plain turns for each place among the candidates; the eos is read too."""
    num = len(columns["negative_length"].row(0))
    negatives = Ragged(columns["negative"].values, np.append(0, columns["negative_length"].values.cumsum()))
    batches = []
    for place in range(num + 1):
        candidate = columns["response"] if place == 0 else negatives.take(np.arange(ROWS) * num + place - 1)
        ended = Ragged.from_lists([[*candidate.row(n).tolist(), 0] for n in range(ROWS)])  # collate drops the last
        padded = TurnEncoder(encoder.turns.tokenizer, encoder.turns.layout, packed=False)
        batch = padded.collate({"context": columns["context"], "response": ended})
        tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
        last = np.append(np.flatnonzero(np.diff(batch["target_row"])), len(batch["target"]) - 1)
        batches.append(
            {
                **tensors,
                "last": tensors["target_at"][last],
                "gold_at": torch.from_numpy(np.delete(batch["target_at"], last)),
            }
        )
    return batches


def naive_output(model: Any, passes: list[dict[str, Tensor]], batch: dict[str, Tensor]) -> Contrast:
    """Runs every candidate with its context through the whole model."""
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    ends, logits, query = [], torch.empty(0), torch.empty(0)
    for place, inputs in enumerate(passes):
        at = inputs["gold_at"] if place == 0 else inputs["gold_at"][:0]
        with at_places(model.get_output_embeddings(), at), last_states(model) as seen:
            output = model(**{name: inputs[name] for name in names if name in inputs}, use_cache=False)
        states = seen[0].flatten(0, 1)
        ends.append(states[inputs["last"]])
        if place == 0:
            first = inputs["target_at"][torch.searchsorted(inputs["target_row"], torch.arange(ROWS))]
            logits, query = output.logits, states[first]
            if model.config.is_encoder_decoder:
                inside = inputs["attention_mask"][..., None]
                query = (output.encoder_last_hidden_state * inside).sum(1) / inside.sum(1)
    return Contrast(logits, query, torch.stack(ends, dim=1).flatten(0, 1))


def loss_of(model: Any, objective: InfoNce, batch: dict[str, Tensor], output: Contrast) -> Tensor:
    losses = token_losses(output.logits, batch["target"])
    step = Step(batch=batch, model=model, output=output, losses=losses, processes=OneProcess(), log=lambda *_: None)
    return objective(step)


def train(model: Any, objective: InfoNce, loss: Tensor) -> Tensor:
    loss.backward()
    for module in (model, objective):
        module.zero_grad()
    return loss.detach()


def least_work(model: Any, columns: dict[str, Any]) -> float:
    """Divides the multiplications of the naive way by the fewest that an exact way needs."""
    context, gold = columns["context"].lengths, columns["response"].lengths
    num = len(columns["negative_length"].row(0))
    candidates = np.column_stack([gold, columns["negative_length"].values.reshape(ROWS, num)])
    weights = {name: p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name}
    head = int(gold.sum()) * model.get_output_embeddings().weight.numel()
    with_context = context[:, None] * candidates  # pairs of a candidate's and the context's tokens
    among_themselves = candidates * (candidates + 1) // 2  # pairs of a candidate's own tokens
    if model.config.is_encoder_decoder:
        config = model.config
        encoder = sum(n for name, n in weights.items() if name.startswith("encoder.") and "bias" not in name)
        crossed = sum(n for name, n in weights.items() if "EncDecAttention.k" in name or "EncDecAttention.v" in name)
        decoder = sum(n for name, n in weights.items() if name.startswith("decoder.") and "bias" not in name) - crossed
        pair = 2 * config.num_layers * config.num_heads * config.d_kv
        candidates = candidates + 1  # the marker in front
        once = int(context.sum()) * (encoder + crossed) + pair * int((context**2).sum())
        each = int(candidates.sum()) * decoder + pair * int((with_context + among_themselves).sum())
    else:
        layers = sum(n for name, n in weights.items() if ".layers." in name)
        pair = 2 * model.config.num_hidden_layers * model.config.hidden_size
        once = int(context.sum()) * layers + pair * int((context * (context + 1) // 2).sum())
        each = int(candidates.sum()) * layers + pair * int((with_context + among_themselves).sum())
    return ((num + 1) * once + each + head) / (once + each + head)


if __name__ == "__main__":
    main()
