"""Compares training a generator with a padded loop of plain transformers.

The padded loop, like FaithDial's, takes rows in random order, pads them to the longest of their batch, and computes
logits of every token. Ours batches turns of similar length (causal models: without padding), and computes logits only
of responses. Both run forward, backward, clipping and AdamW from the same weights; padding is not counted.

Needs: `flan-t5-small` (fetched once).

python -m speed.lm_speed
"""

import copy
from collections import Counter
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
from faithkit.fast import accelerate, accelerate_training, best_precision, keep_freed_memory, plan_batches
from faithkit.training.language_model import INPUTS, run_model, token_losses
from faithkit.weights.resolve import resolve
from generation.weights import load_generator
from speed.measure import BenchmarkParser, alternate, rates, table, write_results
from speed.samples import Batch, train_batches

BATCH_SIZE = 16
IGNORED = -100  # labels that transformers leaves out of its loss
WEIGHTS = "flan-t5-small"
HEADS: Any = {"num_attention_heads": 8, "num_key_value_heads": 4}
LAYERS: Any = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1024}
MODELS = {WEIGHTS: SEQ2SEQ, "a random Llama, 6 layers of 384": CAUSAL}


def main() -> None:
    """Times training steps of both sides in turns."""
    parser = BenchmarkParser(__doc__, rounds=2, batches=4)
    parser.add_argument("--name", help="of the machine, for a section of its own")
    options = parser.parse()
    torch.set_num_threads(1)
    rows = [[name, *row] for name, kind in MODELS.items() for row in compare(kind, options.batches, options.rounds)]
    title = "Training generators" + (f", {options.name}" if options.name else "")
    about = (
        f"Turns of the embedded corpus in FaithDial's layout; each side trains on {options.batches} batches of "
        f"{BATCH_SIZE}, without dropout."
    )
    columns = ["model", "side", "tokens a CPU-second", "faster"]
    write_results(title, about, table(columns, rows), quick=options.quick)


def build(kind: str) -> tuple[Any, Any, TurnEncoder]:
    """Builds a model for our side, a copy for the other one, and the encoder of turns."""
    layout = TurnLayout(kind=kind, max_length=512, max_response_length=64)
    tokenizer = load_tokenizer(resolve(WEIGHTS))
    new_tokens = add_markers(tokenizer, layout)
    if kind == SEQ2SEQ:
        model = load_generator(WEIGHTS, "seq2seq", tokenizer=tokenizer, new_tokens=new_tokens, dropout=0.0)
    else:
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**HEADS, **LAYERS, vocab_size=len(tokenizer)))
    plain = copy.deepcopy(model)
    accelerate_training(model, packed=kind == CAUSAL)
    accelerate(model)
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

    def collate(encoder: TurnEncoder, plan: Any) -> list[Batch]:
        chosen = ({n: c.take(rows) if isinstance(c, Ragged) else c[rows] for n, c in columns.items()} for rows in plan)
        arrays = (encoder.collate(batch) for batch in chosen)
        return [{name: torch.from_numpy(np.ascontiguousarray(side)) for name, side in one.items()} for one in arrays]

    batches = {"padded": collate(padded, order.reshape(num_batches, -1)), "ours": collate(turns, even)}
    counts = {"padded": int(lengths[order].sum()), "ours": int(lengths[np.concatenate(even)].sum())}
    sides = {"padded, fp32": partial(train_batches, plain, batches["padded"], torch.float32, padded_loss)}
    for precision in dict.fromkeys(("32-true", best_precision("cpu"))):
        dtype = torch.float32 if precision == "32-true" else torch.bfloat16
        sides[f"ours, {precision}"] = partial(train, model, batches["ours"], dtype)
    taken = alternate(sides, num_rounds, apart=True)
    return rates(taken, {side: counts[side.split(",")[0]] for side in sides}, digits=0)


def train(model: Any, batches: list[Batch], dtype: torch.dtype) -> float:
    """Trains on our side, as `train.py` does; returns CPU-seconds."""
    keep_freed_memory()
    return train_batches(model, batches, dtype, our_loss)


def padded_loss(model: Any, batch: Batch) -> Tensor:
    """Computes the loss as transformers does, from the logits of every token."""
    inputs = {name: batch[name] for name in INPUTS if name in batch and name != "position_ids"}
    logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
    labels = torch.full((len(logits),), IGNORED).index_copy(0, batch["target_at"], batch["target"].long())
    return cross_entropy(logits.float(), labels, ignore_index=IGNORED)


def our_loss(model: Any, batch: Batch) -> Tensor:
    return token_losses(run_model(model, batch).logits, batch["target"]).mean()


if __name__ == "__main__":
    main()
