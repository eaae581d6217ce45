"""Training on dialogue turns: tokens a CPU-second of our batches against a padded loop in the manner of FaithDial's.

The padded loop takes rows in random order, pads them to the longest of their batch, and has logits at every place. Ours
takes turns of like length together (causal models: without padding), and has logits where a response is. Both do the
same steps on the same turns with the same weights: forward, backward, clipping, AdamW. Padding is never counted.

python -m benchmarks.lm_speed
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.infonce_speed import WEIGHTS, build
from benchmarks.measure import Ratio, alternate, report, table
from common.batching import plan_batches
from common.optimiser import build_optimizer, parameter_groups
from data_modules.build import build_source
from data_modules.encode_turns import TurnEncoder
from data_modules.ragged import Ragged, join_rows, pad_rows
from data_modules.rows import ReadReport
from data_modules.source import read_examples
from data_modules.turns import CAUSAL, SEQ2SEQ
from generation.forward import run_model, token_losses

BATCH_SIZE, LR, CLIP = 16, 1e-4, 1.0
IGNORED = -100  # what transformers leaves out of its loss


def main() -> None:
    """Times an epoch of both ways in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, kind in (("flan-t5-small", SEQ2SEQ), ("Llama", CAUSAL)):
        rows += compare(name, kind, options.turns, options.rounds)
    body = (
        f"{options.turns} turns of the embedded corpus in FaithDial's layout, in batches of {BATCH_SIZE}; fp32, no "
        f"dropout. `{WEIGHTS}`, and a random Llama of 6 layers of 384."
    )
    header = ["model", "side", "tokens a CPU-second", "of what is read padding", "faster"]
    report("Training generators", f"{body}\n\n{table(header, rows)}")


def compare(name: str, kind: str, num_turns: int, num_rounds: int) -> list[list[Any]]:
    """Two lines of the table."""
    model, plain, turns = build(kind)
    columns = columns_of(turns, num_turns)
    tokens = int(columns["length"].sum())
    sides = {
        "padded": lambda: train(plain, padded(turns, columns)),
        "ours": lambda: train(model, bucketed(turns, columns)),
    }
    taken = alternate(sides, num_rounds)
    places = {"padded": padded(turns, columns), "ours": bucketed(turns, columns)}
    return [
        [
            name,
            side,
            f"{tokens / np.median(taken[side]):,.0f}",
            f"{1 - tokens / sum(map(num_places, places[side])):.0%}",
            Ratio.of(taken["padded"], taken[side]),
        ]
        for side in sides
    ]


def columns_of(turns: TurnEncoder, count: int) -> dict[str, Any]:
    """Turns spread over the corpus: those of a dialogue grow longer as it goes on."""
    examples = list(read_examples(build_source("faithdial", "embedded"), "train", ReadReport()))
    return turns.encode(examples[:: len(examples) // count][:count], Counter())


def bucketed(turns: TurnEncoder, columns: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """Our batches."""
    for rows in plan_batches(columns["length"], BATCH_SIZE, None, np.random.default_rng(0)):
        batch = turns.collate(taken(columns, rows))
        yield {name: torch.from_numpy(column) for name, column in batch.items()}


def padded(turns: TurnEncoder, columns: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """Batches in random order, with labels as transformers takes them."""
    order, pad = np.random.default_rng(0).permutation(len(columns["response"])), turns.tokenizer.pad_token_id
    for start in range(0, len(order), BATCH_SIZE):
        batch = taken(columns, order[start : start + BATCH_SIZE])
        context, response = batch["context"], batch["response"]
        if turns.layout.kind == SEQ2SEQ:
            labels = torch.from_numpy(pad_rows(response, IGNORED))
            decoded = torch.from_numpy(pad_rows(response, pad)).roll(1, dims=1)
            decoded[:, 0] = turns.decoder_prefix[0]
            yield {**inputs(context, pad), "decoder_input_ids": decoded, "labels": labels}
        else:
            silent = Ragged(np.full(len(context.values), IGNORED, np.int32), context.offsets)
            labels = torch.from_numpy(pad_rows(join_rows([silent, response]), IGNORED))
            yield {**inputs(join_rows([context, response]), pad), "labels": labels}


def taken(columns: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: c.take(rows) if isinstance(c, Ragged) else c[rows] for name, c in columns.items()}


def inputs(rows: Ragged, pad: int) -> dict[str, Tensor]:
    inside = np.arange(int(rows.lengths.max())) < rows.lengths[:, None]
    return {"input_ids": torch.from_numpy(pad_rows(rows, pad)), "attention_mask": torch.from_numpy(inside).long()}


def num_places(batch: dict[str, Tensor]) -> int:
    return sum(batch[name].numel() for name in ("input_ids", "decoder_input_ids") if name in batch)


def train(model: Any, batches: Iterator[dict[str, Tensor]]) -> None:
    """An epoch."""
    optimizer = build_optimizer(parameter_groups(model, LR, 0.0), LR)
    for batch in batches:
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
