"""Compares training the critic with transformers' Trainer, and training generators with a padded loop.

Both trainers of the critic start from the same weights, take the same examples in batches of 32, clip at 1 and use
AdamW (fused). The time is taken from the first batch to the last: loading, tokenising and checkpoints do not count.

The padded loop, like FaithDial's, takes rows in random order, pads them to the longest of their batch, and computes
logits of every token. Ours batches turns of similar length (causal models: without padding), and computes logits only
of responses. Both run forward, backward, clipping and AdamW from the same weights; padding is not counted.

Needs: `flan-t5-small` (fetched once) and accelerate (the `bench` extra), which transformers' Trainer asks for.

python -m speed.train_speed
"""

import copy
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    DataCollatorWithPadding,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from critic.options import CriticOptions
from critic.sequence.module import CriticModule
from critic.weights import load_classifier
from data_modules.build import build_source
from data_modules.encoding.encoder import Ragged
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.fast import accelerate, accelerate_training, best_precision, keep_freed_memory, plan_batches
from faithkit.records import LABELS, Example
from faithkit.training.language_model import INPUTS, run_model, token_losses
from faithkit.weights.resolve import resolve
from generation.weights import load_generator
from speed.measure import BenchmarkParser, alternate, cpu_seconds, rates, require, table, write_results
from speed.samples import LONGEST, PAIRS, Batch, make_pairs, train_batches, train_one_epoch

BATCH_SIZE, LR = 32, 3e-5
TURNS = 16  # of a batch of generators
FLAT = ("input_ids", "position_ids")
IGNORED = -100  # labels that transformers leaves out of its loss
WEIGHTS = "flan-t5-small"
HEADS: Any = {"num_attention_heads": 8, "num_key_value_heads": 4}
LAYERS: Any = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1024}
MODELS = {WEIGHTS: SEQ2SEQ, "a random Llama, 6 layers of 384": CAUSAL}


def main() -> None:
    """Trains critics and generators in turns."""
    parser = BenchmarkParser(__doc__, examples=256, batches=4)
    parser.add_argument("--weights", default="minilm", help="of the critic")
    parser.add_argument("--name", help="of the machine, for sections of generators")
    options = parser.parse()
    require("accelerate")
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(resolve(options.weights))
    examples = make_pairs(tokenizer, options.examples)
    sides = {"transformers.Trainer, fp32": partial(train_with_transformers, options.weights, tokenizer, examples)}
    encoder = PairEncoder(tokenizer=tokenizer, max_length=LONGEST)
    build = partial(CriticModule, CriticOptions(weights=options.weights))

    def train_with_faithkit(precision: str) -> float:
        """Trains one epoch in our Trainer with its callbacks; returns CPU-seconds."""
        about: dict[str, Any] = {"precision": precision, "monitor": "macro_f1"}
        return train_one_epoch(encoder, build, examples, BATCH_SIZE, LR, **about)[1]

    for precision in dict.fromkeys(("32-true", best_precision("cpu"))):  # equal where the CPU has no bf16
        name = f"ours, {'fp32' if precision == '32-true' else precision}"
        sides[name] = partial(train_with_faithkit, precision)
    taken = alternate(sides, options.rounds, apart=True)
    header = ["side", "examples a CPU-second", "against transformers.Trainer"]
    about = f"{len(examples)} examples, {PAIRS}; `{options.weights}`, batches of {BATCH_SIZE}."
    rows = rates(taken, len(examples), digits=2)
    write_results("Training", about, table(header, rows), quick=options.quick)
    # Steps of generators, on both sides in turns.
    rows = [[name, *row] for name, kind in MODELS.items() for row in compare(kind, options.batches, options.rounds)]
    title = "Training generators" + (f", {options.name}" if options.name else "")
    about = (
        f"Turns of the embedded corpus in FaithDial's layout; each side trains on {options.batches} batches of "
        f"{TURNS}, without dropout."
    )
    header = ["model", "side", "tokens a CPU-second", "faster"]
    write_results(title, about, table(header, rows), quick=options.quick)


def train_with_transformers(weights: str, tokenizer: Any, examples: list[Example]) -> float:
    """Trains one epoch in transformers' Trainer, padded by DataCollatorWithPadding; returns CPU-seconds."""
    clock = [0.0]

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            clock[0] -= cpu_seconds()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            clock[0] += cpu_seconds()

    encoded = tokenizer([e.knowledge for e in examples], [e.response for e in examples])
    rows = [
        {**{name: values[i] for name, values in encoded.items()}, "labels": LABELS.index(example.label or LABELS[0])}
        for i, example in enumerate(examples)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH_SIZE,
            num_train_epochs=1,
            learning_rate=LR,
            weight_decay=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=10,
            disable_tqdm=True,
        )
        Trainer(
            model=load_classifier(weights),
            args=arguments,
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Clock()],
        ).train()
    return clock[0]


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
    order = np.random.default_rng(0).permutation(len(lengths))[: num_batches * TURNS]
    plan = plan_batches(lengths, TURNS, None, np.random.default_rng(0), columns.get("second_length"))
    plan = sorted((rows for rows in plan if len(rows) == TURNS), key=lambda rows: lengths[rows].mean())
    even = [plan[(2 * n + 1) * len(plan) // (2 * num_batches)] for n in range(num_batches)]  # from short to long

    def collate(encoder: TurnEncoder, plan: Any) -> list[Batch]:
        chosen = ({n: c.take(rows) if isinstance(c, Ragged) else c[rows] for n, c in columns.items()} for rows in plan)
        arrays = (encoder.collate(batch) for batch in chosen)
        return [{name: torch.from_numpy(np.ascontiguousarray(side)) for name, side in one.items()} for one in arrays]

    batches = {"padded": collate(padded, order.reshape(num_batches, -1)), "ours": collate(turns, even)}
    counts = {"padded": int(lengths[order].sum()), "ours": int(lengths[np.concatenate(even)].sum())}
    sides = {"padded, fp32": partial(train_batches, plain, batches["padded"], torch.float32, padded_loss)}
    if kind == CAUSAL:  # what DataCollatorWithFlattening makes: one row, whose positions begin again with each text
        rows = [{**batch, **{name: batch[name].reshape(1, -1) for name in FLAT}} for batch in batches["ours"]]
        counts["padding-free collator"] = counts["ours"]
        sides["padding-free collator, fp32"] = partial(
            train_batches, plain, rows, torch.float32, partial(padded_loss, names=FLAT)
        )
    for precision in dict.fromkeys(("32-true", best_precision("cpu"))):
        dtype = torch.float32 if precision == "32-true" else torch.bfloat16
        sides[f"ours, {precision}"] = partial(train_unpadded, model, batches["ours"], dtype)
    taken = alternate(sides, num_rounds, apart=True)
    return rates(taken, {side: counts[side.split(",")[0]] for side in sides}, digits=0)


def train_unpadded(model: Any, batches: list[Batch], dtype: torch.dtype) -> float:
    """Trains on our side, as `train.py` does; returns CPU-seconds."""
    keep_freed_memory()
    loss = lambda model, batch: token_losses(run_model(model, batch).logits, batch["target"]).mean()  # noqa: E731
    return train_batches(model, batches, dtype, loss)


def padded_loss(model: Any, batch: Batch, names: Sequence[str] = tuple(set(INPUTS) - {"position_ids"})) -> Tensor:
    """Computes the loss as transformers does, from the logits of every token; `names` are the model's inputs."""
    inputs = {name: batch[name] for name in names if name in batch}
    logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
    labels = torch.full((len(logits),), IGNORED).index_copy(0, batch["target_at"], batch["target"].long())
    return cross_entropy(logits.float(), labels, ignore_index=IGNORED)


if __name__ == "__main__":
    main()
