"""Compares training the critic with our Trainer and with transformers' Trainer and its usual collator.

Both start from the same weights, take the same examples in batches of 32, clip at 1 and use AdamW (fused). The time is
taken from the first batch to the last: loading, tokenising and checkpoints do not count.

Needs: accelerate (the `bench` extra), which transformers' Trainer asks for.

python -m speed.train_speed
"""

import argparse
import tempfile
from typing import Any

import numpy as np

from faithkit.records import LABELS, Example
from speed.measure import Ratio, alternate, cpu_seconds, report, require, table
from speed.mixed import DESCRIPTION, LONGEST, InMemory, mixed_pairs
from speed.own_training import train_one_epoch

BATCH_SIZE, LR = 32, 3e-5


def main() -> None:
    """Trains over the same examples in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="minilm")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    require("accelerate")
    import torch

    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.hardware import best_precision
    from faithkit.weights.resolve import resolve

    torch.set_num_threads(1)
    tokenizer = load_tokenizer(resolve(options.weights))
    examples = mixed_pairs(tokenizer, options.examples)
    automatic = best_precision("cpu")
    sides = {
        "transformers.Trainer, fp32": lambda: huggingface(options.weights, tokenizer, examples),
        "ours, fp32": lambda: ours(options.weights, tokenizer, examples, "32-true"),
    }
    if automatic != "32-true":
        sides[f"ours, {automatic}"] = lambda: ours(options.weights, tokenizer, examples, automatic)
    taken = alternate(sides, options.rounds)
    theirs, own = taken["transformers.Trainer, fp32"], taken["ours, fp32"]
    rows = [
        [name, f"{len(examples) / np.median(seconds):.2f}", Ratio.of(theirs, seconds), Ratio.of(own, seconds)]
        for name, seconds in taken.items()
    ]
    header = ["side", "examples a CPU-second", "against transformers.Trainer", "against our fp32"]
    body = f"{len(examples)} examples, {DESCRIPTION}; `{options.weights}`, batches of {BATCH_SIZE}."
    if automatic == "32-true":
        body += " This CPU computes in fp32 only (no AVX512-BF16, no AMX), so precision=auto trains in fp32 too."
    report("Training", f"{body}\n\n{table(header, rows)}")


def ours(weights: str, tokenizer: Any, examples: list[Example], precision: str) -> float:
    """Trains one epoch in our Trainer with its callbacks; returns CPU-seconds."""
    from critic.sequence.module import CriticModule
    from critic.sequence.options import CriticOptions
    from data_modules.data_module import DataModule
    from data_modules.encoding.pairs import PairEncoder
    from faithkit.training.options import OptimizerOptions
    from faithkit.training.trainer import seed_and_threads

    seed_and_threads(seed=0, num_threads=1)
    encoder = PairEncoder(tokenizer=tokenizer, max_length=LONGEST)
    data = DataModule([(InMemory(examples), 1.0)], encoder, batch_size=BATCH_SIZE)
    data.setup()
    module = CriticModule(
        CriticOptions(weights=weights),
        OptimizerOptions(lr=LR, weight_decay=0.01, warmup=0.1, schedule="linear"),
        num_steps=data.num_batches,
        dataset="mixed",
    )
    return train_one_epoch(data, module, precision=precision, monitor="validation/mixed/macro_f1")


def huggingface(weights: str, tokenizer: Any, examples: list[Example]) -> float:
    """Trains one epoch in transformers' Trainer, padded by DataCollatorWithPadding; returns CPU-seconds."""
    from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments

    from critic.weights import load_classifier

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
        trainer = Trainer(
            model=load_classifier(weights),
            args=arguments,
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Clock()],
        )
        trainer.train()
    return clock[0]


if __name__ == "__main__":
    main()
