"""A worker that fine-tunes with TRL's SFTTrainer, a chunk of rows at a time, each from the same weights.

PEER_PYTHON trl_train.py --weights FOLDER --rows ROWS --held-out ROWS

A row is a JSON line {"input_ids": [...], "completion_mask": [...]}. `KIND START STOP` on a line of the input trains one
epoch over these rows in their order, KIND being padded or packed, with -bf16 behind it for its mixed precision, and
answers {"seconds", "losses", "held_out"}: the CPU-seconds from the first batch to the last, the loss of each step, and
the mean loss of the held-out rows' tokens afterwards. `leak START STOP` packs two rows as the trainer does and answers
how far the logits of the second are from those that it has alone.
"""

import argparse
import tempfile
from typing import Any

import torch
from datasets import Dataset
from lettuce_worker import cpu_seconds, read_rows, serve
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Clock(TrainerCallback):
    """Remembers the CPU-seconds of the training loop, and the losses that it logs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.losses: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.seconds -= cpu_seconds()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.seconds += cpu_seconds()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main() -> None:
    """Loads, then waits for work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=1280)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, held_out = read_rows(options.rows), read_rows(options.held_out)
    tokenizer = AutoTokenizer.from_pretrained(options.weights)

    def model() -> Any:
        return AutoModelForCausalLM.from_pretrained(options.weights, dtype=torch.float32)

    def trainer(kind: str, chunk: list[dict[str, Any]], folder: str) -> SFTTrainer:
        settings = SFTConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=kind.endswith("-bf16"),
            packing=kind.startswith("packed"),
            completion_only_loss=True,
            max_length=options.max_length,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=options.batch_size,
            num_train_epochs=1,
            train_sampling_strategy="sequential",
            learning_rate=options.lr,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        return SFTTrainer(model(), settings, train_dataset=Dataset.from_list(chunk), processing_class=tokenizer)

    def mean_loss(trained: Any) -> float:
        total, count = 0.0, 0
        with torch.inference_mode():
            for row in held_out:
                ids = torch.tensor([row["input_ids"]])
                wanted = torch.tensor(row["completion_mask"][1:], dtype=torch.bool)
                logits = trained(input_ids=ids).logits[0, :-1].float()
                total += float(torch.nn.functional.cross_entropy(logits[wanted], ids[0, 1:][wanted], reduction="sum"))
                count += int(wanted.sum())
        return total / count

    def leak(start: int, stop: int) -> dict[str, float]:
        chunk = rows[start:stop]
        with tempfile.TemporaryDirectory() as folder:
            made = trainer("packed", chunk, folder)
            batch = next(iter(made.get_train_dataloader()))
            trained, most = made.model.eval(), 0.0
            taken = {name: value for name, value in batch.items() if name != "labels"}
            with torch.inference_mode():
                packed = trained(**taken).logits.flatten(0, 1)
                flat = batch["input_ids"].flatten()
                for row in chunk:
                    ids = torch.tensor(row["input_ids"])
                    place = next(
                        begin for begin in range(len(flat) - len(ids) + 1) if flat[begin : begin + len(ids)].equal(ids)
                    )
                    alone = trained(input_ids=ids[None]).logits[0]
                    most = max(most, float((packed[place : place + len(ids)] - alone).abs().max()))
        return {"difference": most, "scale": float(alone.abs().max())}

    def run(kind: str, start: str, stop: str) -> dict[str, Any]:
        if kind == "leak":
            return leak(int(start), int(stop))
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            made = trainer(kind, rows[int(start) : int(stop)], folder)
            made.add_callback(clock)
            made.train()
            return {"seconds": clock.seconds, "losses": clock.losses, "held_out": mean_loss(made.model.eval())}

    serve(run)


if __name__ == "__main__":
    main()
