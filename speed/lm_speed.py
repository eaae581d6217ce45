"""Compares training on dialogue turns with a padded loop like FaithDial's: tokens a CPU-second.

The padded loop takes rows in random order, pads them to the longest of their batch, and computes logits at every place.
Ours batches turns of similar length (causal models: without padding), and computes logits only of responses. Both take
the same steps from the same weights: forward, backward, clipping, AdamW. Padding is never counted. The padded loop is
in fp32, as FaithDial's is by default; ours in fp32, and in bf16-mixed where `precision=auto` chooses that.

Needs: nothing more than faithkit, and `flan-t5-small` (fetched once).

python -m speed.lm_speed
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data_modules.build import build_source
from data_modules.encoding.ragged import Ragged, join_rows, pad_rows
from data_modules.encoding.turn_layout import CAUSAL, SEQ2SEQ
from data_modules.encoding.turns import TurnEncoder
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.hardware import best_precision
from faithkit.training.batching import plan_batches
from faithkit.training.language_model import run_model, token_losses
from faithkit.training.optimizer import build_optimizer, parameter_groups
from speed.infonce_speed import WEIGHTS, build
from speed.measure import Ratio, alternate, report, table

BATCH_SIZE, LR, CLIP = 16, 1e-4, 1.0
IGNORED = -100  # what transformers leaves out of its loss
Batches = list[tuple[Any, dict[str, Tensor]]]  # the rows and the model's inputs of each batch


def main() -> None:
    """Times an epoch of both ways in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=1024, help="turns to make batches of")
    parser.add_argument("--batches", type=int, default=4, help="batches that each side is timed on")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, kind in (("flan-t5-small", SEQ2SEQ), ("Llama", CAUSAL)):
        rows += compare(name, kind, options.turns, options.batches, options.rounds)
    body = (
        f"{options.turns} turns of the embedded corpus in FaithDial's layout, in batches of {BATCH_SIZE}; each side "
        f"does {options.batches} of them, and is measured by token. No dropout. `{WEIGHTS}`, and a random "
        "Llama of 6 layers of 384."
    )
    header = ["model", "side", "tokens a CPU-second", "of what is read padding", "faster"]
    report("Training generators", f"{body}\n\n{table(header, rows)}")


def compare(name: str, kind: str, num_turns: int, num_batches: int, num_rounds: int) -> list[list[Any]]:
    """Makes a model's lines of the table."""
    model, plain, turns = build(kind)
    columns = columns_of(turns, num_turns)
    sides = {
        "padded, fp32": (plain, padded(turns, columns, num_batches), torch.float32),
        "ours, fp32": (model, bucketed(turns, columns, num_batches), torch.float32),
    }
    if best_precision("cpu") == "bf16-mixed":
        sides["ours, bf16-mixed"] = (*sides["ours, fp32"][:2], torch.bfloat16)
    tokens = {
        side: sum(int(columns["length"][rows].sum()) for rows, _ in batches) for side, (_, batches, _) in sides.items()
    }
    places = {side: sum(num_places(batch) for _, batch in batches) for side, (_, batches, _) in sides.items()}
    taken = alternate({side: partial(train, *arguments) for side, arguments in sides.items()}, num_rounds)
    by_token = {side: [second / tokens[side] for second in seconds] for side, seconds in taken.items()}
    return [
        [
            name,
            side,
            f"{1 / np.median(by_token[side]):,.0f}",
            f"{max(0.0, 1 - tokens[side] / places[side]):.0%}",
            Ratio.of(by_token["padded, fp32"], by_token[side]),
        ]
        for side in sides
    ]


def columns_of(turns: TurnEncoder, count: int) -> dict[str, Any]:
    """Encodes turns spread evenly over the corpus: within a dialogue they grow longer."""
    examples = list(read_examples(build_source("faithdial", "embedded"), "train", ReadReport()))
    return turns.encode(examples[:: len(examples) // count][:count], Counter())


def bucketed(turns: TurnEncoder, columns: dict[str, Any], count: int) -> Batches:
    """Takes some of our batches, evenly from the shortest to the longest."""
    plan = plan_batches(columns["length"], BATCH_SIZE, None, np.random.default_rng(0), columns.get("second_length"))
    plan = sorted((rows for rows in plan if len(rows) == BATCH_SIZE), key=lambda rows: columns["length"][rows].mean())
    chosen = [plan[(2 * n + 1) * len(plan) // (2 * count)] for n in range(count)]
    return [(rows, tensors(turns.collate(taken(columns, rows)))) for rows in chosen]


def padded(turns: TurnEncoder, columns: dict[str, Any], count: int) -> Batches:
    """Makes padded batches of turns drawn at random, with labels as transformers takes them."""
    order, pad = np.random.default_rng(0).permutation(len(columns["response"])), turns.tokenizer.pad_token_id
    batches = []
    for rows in order[: count * BATCH_SIZE].reshape(count, BATCH_SIZE):
        batch = taken(columns, rows)
        context, response = batch["context"], batch["response"]
        if turns.layout.kind == SEQ2SEQ:
            decoded = np.roll(pad_rows(response, pad), 1, axis=1)
            decoded[:, 0] = turns.decoder_prefix[0]
            labels = pad_rows(response, IGNORED)
            batch_inputs = {**inputs(context, pad), "decoder_input_ids": decoded, "labels": labels}
        else:
            silent = Ragged(np.full(len(context.values), IGNORED, np.int32), context.offsets)
            labels = pad_rows(join_rows([silent, response]), IGNORED)
            batch_inputs = {**inputs(join_rows([context, response]), pad), "labels": labels}
        batches.append((rows, tensors(batch_inputs)))
    return batches


def taken(columns: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: c.take(rows) if isinstance(c, Ragged) else c[rows] for name, c in columns.items()}


def inputs(rows: Ragged, pad: int) -> dict[str, Any]:
    inside = np.arange(int(rows.lengths.max())) < rows.lengths[:, None]
    return {"input_ids": pad_rows(rows, pad), "attention_mask": inside.astype(np.int64)}


def tensors(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def num_places(batch: dict[str, Tensor]) -> int:
    return sum(batch[name].numel() for name in ("input_ids", "decoder_input_ids") if name in batch)


def train(model: Any, batches: Batches, dtype: torch.dtype) -> None:
    """Takes a step on each batch, with the weights in fp32."""
    optimizer = build_optimizer(parameter_groups(model, LR, 0.0), LR)
    for _, batch in batches:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            if "labels" in batch:
                loss = model(**batch, use_cache=False).loss
            else:
                loss = token_losses(run_model(model, batch).logits, batch["target"]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
