"""Compares training the critic with our Trainer and with transformers' Trainer and its usual collator.

Both start from the same weights, take the same examples in batches of 32, clip at 1 and use AdamW (fused). The time is
taken from the first batch to the last: loading, tokenising and checkpoints do not count.

Needs: accelerate (the `bench` extra), which transformers' Trainer asks for.

python -m speed.train_speed
"""

import tempfile
from functools import partial
from typing import Any

import torch
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments

from critic.sequence.module import CriticModule
from critic.sequence.options import CriticOptions
from critic.weights import load_classifier
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.fast import best_precision
from faithkit.records import LABELS, Example
from faithkit.weights.resolve import resolve
from speed.measure import BenchmarkParser, alternate, cpu_seconds, rates, require, table, write_results
from speed.samples import LONGEST, PAIRS, make_pairs, train_one_epoch

BATCH_SIZE, LR = 32, 3e-5


def main() -> None:
    """Trains on the same examples in turns."""
    parser = BenchmarkParser(__doc__, examples=256)
    parser.add_argument("--weights", default="minilm")
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


if __name__ == "__main__":
    main()
