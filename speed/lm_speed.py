"""Compares training a generator with padded loops of plain transformers: likelihood, and the contrastive InfoNCE.

Likelihood: the padded loop, like FaithDial's, takes rows in random order, pads them to the longest of their batch, and
computes logits of every token. Ours batches turns of similar length (causal models: without padding), and computes
logits only of responses. Both run forward, backward, clipping and AdamW from the same weights; padding is not counted.

InfoNCE: the naive way reads the context again with each of the N + 1 candidates; ours reads it once. Both run forward
and backward and compute logits of the gold responses only. That both give the same loss is tested in tests/generation.

Needs: `flan-t5-small` (fetched once).

python -m speed.lm_speed [--negatives 1 4 8]
"""

import copy
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from data_modules.build import build_source
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.hardware import best_precision
from faithkit.packing import use_packed_attention
from faithkit.training.batch_planning import plan_batches
from faithkit.training.language_model import INPUTS, OneProcess, run_model, token_losses
from faithkit.training.optimizer import build_optimizer, parameter_groups
from faithkit.weights.resolve import resolve
from generation.objectives.infonce import InfoNce, last_states
from generation.objectives.objective import Step
from generation.weights import load_generator
from speed.measure import BenchmarkParser, Ratio, alternate, rates, table, write_results

BATCH_SIZE, LR, CLIP = 16, 1e-4, 1.0
ROWS, CONTEXT, RESPONSE = 8, (100, 12), (25, 5)  # of InfoNCE: rows of a batch; tokens: mean and standard deviation
IGNORED = -100  # labels that transformers leaves out of its loss
WEIGHTS = "flan-t5-small"
MODELS = {WEIGHTS: SEQ2SEQ, "a random Llama, 6 layers of 384": CAUSAL}
Batch = dict[str, Tensor]


def main() -> None:
    """Times training steps of both sides in turns."""
    parser = BenchmarkParser(__doc__, rounds=2, batches=4)
    parser.add_argument("--negatives", type=int, nargs="+", default=[1, 4, 8])
    options = parser.parse()
    torch.set_num_threads(1)
    rows = [[name, *row] for name, kind in MODELS.items() for row in compare(kind, options.batches, options.rounds)]
    about = (
        f"Turns of the embedded corpus in FaithDial's layout; each side trains on {options.batches} batches of "
        f"{BATCH_SIZE}, without dropout."
    )
    header = ["model", "side", "tokens a CPU-second", "faster"]
    write_results("Training generators", about, table(header, rows), quick=options.quick)
    numbers = options.negatives[: 1 if options.quick else None]
    contrasts = [[name, *compare_infonce(k, n, options.rounds)] for name, k in MODELS.items() for n in numbers]
    about = (
        f"{ROWS} rows, contexts of {CONTEXT[0]} tokens (standard deviation {CONTEXT[1]}), responses of {RESPONSE[0]} "
        f"({RESPONSE[1]}); fp32, no dropout. Naive: N + 1 padded passes of plain transformers."
    )
    header = ["model", "negatives", "ours, s a step", "naive, s a step", "faster"]
    write_results("InfoNCE", about, table(header, contrasts), quick=options.quick)


def build(kind: str) -> tuple[Any, Any, TurnEncoder]:
    """Builds a model for our side, a copy for the other one, and the encoder of turns."""
    layout = TurnLayout(kind=kind, max_length=512, max_response_length=64)
    tokenizer = load_tokenizer(resolve(WEIGHTS))
    new_tokens = add_markers(tokenizer, layout)
    if kind == SEQ2SEQ:
        model = load_generator(WEIGHTS, "seq2seq", tokenizer=tokenizer, new_tokens=new_tokens, dropout=0.0)
    else:
        torch.manual_seed(0)
        heads: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 6}
        sizes: dict[str, Any] = {"hidden_size": 384, "intermediate_size": 1024, "vocab_size": len(tokenizer)}
        model = LlamaForCausalLM(LlamaConfig(**heads, **sizes))
    plain = copy.deepcopy(model)
    if kind == CAUSAL:
        use_packed_attention(model)
    return model.train(), plain.train(), TurnEncoder(tokenizer, layout)


def compare(kind: str, num_batches: int, num_rounds: int) -> list[list[str]]:
    """Compares likelihood training; returns a row for each side."""
    model, plain, turns = build(kind)
    padded = TurnEncoder(turns.tokenizer, turns.layout, packed=False)
    examples = list(read_examples(build_source("faithdial", "embedded"), "train", ReadReport()))
    spread = examples[:: len(examples) // 1024][:1024]  # turns grow within a dialogue
    columns: dict[str, Any] = turns.encode(spread, Counter())
    lengths = columns["length"]
    order = np.random.default_rng(0).permutation(len(lengths))[: num_batches * BATCH_SIZE]
    plan = plan_batches(lengths, BATCH_SIZE, None, np.random.default_rng(0), columns.get("second_length"))
    plan = sorted((rows for rows in plan if len(rows) == BATCH_SIZE), key=lambda rows: lengths[rows].mean())
    even = [plan[(2 * n + 1) * len(plan) // (2 * num_batches)] for n in range(num_batches)]  # from short to long

    def collate(encoder: TurnEncoder, every: Any) -> list[Batch]:
        batches = ({n: c.take(r) if isinstance(c, Ragged) else c[r] for n, c in columns.items()} for r in every)
        return [to_tensors(encoder.collate(batch)) for batch in batches]

    batches = {"padded": collate(padded, order.reshape(num_batches, -1)), "ours": collate(turns, even)}
    counts = {"padded": int(lengths[order].sum()), "ours": int(lengths[np.concatenate(even)].sum())}
    sides = {"padded, fp32": partial(train, plain, batches["padded"], torch.float32, every_logit=True)}
    for precision in dict.fromkeys(("32-true", best_precision("cpu"))):
        dtype = torch.float32 if precision == "32-true" else torch.bfloat16
        sides[f"ours, {precision}"] = partial(train, model, batches["ours"], dtype)
    return rates(alternate(sides, num_rounds), {side: counts[side.split(",")[0]] for side in sides}, digits=0)


def to_tensors(batch: Mapping[str, Any]) -> Batch:
    return {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in batch.items()}


def train(model: Any, batches: list[Batch], dtype: torch.dtype, *, every_logit: bool = False) -> None:
    """Runs an optimizer step on each batch, with the weights in fp32."""
    optimizer = build_optimizer(parameter_groups(model, LR, 0.0), LR)
    for batch in batches:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            if every_logit:  # as transformers computes its loss
                given = {name: batch[name] for name in INPUTS if name in batch and name != "position_ids"}
                logits = model(**given, use_cache=False).logits.flatten(0, 1)
                labels = torch.full((len(logits),), IGNORED).index_copy(0, batch["target_at"], batch["target"].long())
                loss = cross_entropy(logits.float(), labels, ignore_index=IGNORED)
            else:
                loss = token_losses(run_model(model, batch).logits, batch["target"]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()


def compare_infonce(kind: str, num: int, num_rounds: int) -> list[str]:
    """Compares a step of InfoNCE with a number of negatives; returns the row's figures."""
    model, plain, turns = build(kind)
    objective = InfoNce(weight=0.1, temperature=1.0, query=None, num_negatives=num)
    encoder: Any = objective.encoder(turns, turns)
    objective.set_up(model, 0)
    rng = np.random.default_rng(0)

    def draw(mean: int, deviation: int) -> Ragged:
        sizes = rng.normal(mean, deviation, ROWS).round().clip(2).astype(int)
        return Ragged.from_lists([rng.integers(5, len(turns.tokenizer) - 200, size).tolist() for size in sizes])

    context, response, negatives = draw(*CONTEXT), draw(*RESPONSE), [draw(*RESPONSE) for _ in range(num)]
    by_row = [[negative.row(row).tolist() for negative in negatives] for row in range(ROWS)]
    columns = {
        "context": context,
        "response": response,
        "negative": Ragged.from_lists([[token for ids in row for token in ids] for row in by_row]),
        "negative_length": Ragged.from_lists([[len(ids) for ids in row] for row in by_row]),
    }
    batch = to_tensors(encoder.collate(columns)) | {"index": torch.arange(ROWS), "num_rows": torch.tensor(ROWS)}
    padded = TurnEncoder(turns.tokenizer, turns.layout, packed=False)
    passes = [to_tensors(padded.collate({"context": context, "response": c})) for c in (response, *negatives)]

    def run_ours() -> None:
        output = objective.run(model, batch)
        losses = token_losses(output.logits, batch["target"])
        process: dict[str, Any] = {"processes": OneProcess(), "log": lambda *_: None}
        objective(Step(batch=batch, model=model, output=output, losses=losses, **process)).backward()
        model.zero_grad()

    def run_naive() -> None:
        loss = torch.zeros(())
        for place, given in enumerate(passes):
            targets = given["target_at"] if place == 0 else given["target_at"][:0]
            with last_states(plain) as states:
                logits = run_model(plain, given | {"target_at": targets}).logits
            # Any loss of the candidates' states costs the same.
            loss = loss + states[0].flatten(0, 1)[given["target_at"]].square().mean()
            loss = loss if place else loss + token_losses(logits, given["target"]).mean()
        loss.backward()
        plain.zero_grad()

    taken = alternate({"ours": run_ours, "naive": run_naive}, num_rounds, warm_up=True)
    seconds = [f"{np.median(taken[side]):.2f}" for side in ("ours", "naive")]
    return [str(num), *seconds, str(Ratio.of(taken["naive"], taken["ours"]))]


if __name__ == "__main__":
    main()
