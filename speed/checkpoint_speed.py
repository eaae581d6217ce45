"""Compares checkpoints that outlive a power cut with those of before, which Lightning's own plugin writes.

Both sides train the same critic over the same batches and save last.ckpt `--saves` times, as a validation does. The
time of a save is taken on its own too: CPU-seconds, and seconds on the clock, which include the wait for the disk.

python -m speed.checkpoint_speed
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speed.measure import Ratio, alternate, report, table

BATCH_SIZE = 8


def main() -> None:
    """Trains and saves in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="minilm")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--saves", type=int, default=2, help="of last.ckpt within these steps")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    import torch
    from pytorch_lightning.plugins.io import TorchCheckpointIO

    from faithkit.training.checkpoint_io import DurableCheckpoints

    torch.set_num_threads(1)
    plugins = {"before": TorchCheckpointIO(), "durable": DurableCheckpoints()}
    sides = {name: partial(train, plugin, options) for name, plugin in plugins.items()}
    trained = alternate(sides, options.rounds, warm_up=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = a_checkpoint(options)
        saves = {name: partial(save, plugin, checkpoint, Path(folder)) for name, plugin in plugins.items()}
        cpu = alternate(saves, options.rounds, warm_up=True)
        clock = alternate(saves, options.rounds, clock=time.monotonic)
        megabytes = (Path(folder) / "last.ckpt").stat().st_size / 1e6
    rows = []
    for name in plugins:
        cells = [f"{np.median(taken[name]):.2f} ({Ratio.of(taken[name], taken['before'])})" for taken in (trained, cpu)]
        rows.append([name, *cells, f"{np.median(clock[name]):.2f}"])
    header = [
        "checkpoints",
        "CPU-seconds of a training (against before)",
        "of a save",
        "seconds of a save by the clock",
    ]
    training = f"{options.steps} steps of {BATCH_SIZE} examples, {options.saves} saves of {megabytes:.0f} MB"
    how = (
        "The durable ones are synced to the disk, carry a SHA-256 and are written once; "
        "before, they were built in memory, written to TMPDIR and copied."
    )
    body = f"`{options.weights}`, {training}. {how}"
    report("Checkpoints", f"{body}\n\n{table(header, rows)}")


def build(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Makes a model, its optimiser and a batch."""
    import torch

    from critic.weights import load_classifier

    torch.manual_seed(0)
    model = load_classifier(options.weights)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(5, 1000, (BATCH_SIZE, 128))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.arange(BATCH_SIZE) % 2}
    return model, optimizer, batch


def step(model: Any, optimizer: Any, batch: dict[str, Any]) -> None:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def state(model: Any, optimizer: Any) -> dict[str, Any]:
    return {"global_step": 1, "state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}


def train(plugin: Any, options: argparse.Namespace) -> None:
    """Trains, and saves after equal numbers of steps."""
    from faithkit.training.checkpoint_io import keep_previous

    model, optimizer, batch = build(options)
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder) / "last.ckpt"
        for number in range(1, options.steps + 1):
            step(model, optimizer, batch)
            if number % (options.steps // options.saves) == 0:
                keep_previous(last, last.with_name("previous.ckpt"))
                plugin.save_checkpoint(state(model, optimizer), last)


def a_checkpoint(options: argparse.Namespace) -> dict[str, Any]:
    """Makes the content of last.ckpt: weights, and two moments of each."""
    model, optimizer, batch = build(options)
    step(model, optimizer, batch)
    return state(model, optimizer)


def save(plugin: Any, checkpoint: dict[str, Any], folder: Path) -> None:
    plugin.save_checkpoint(checkpoint, folder / "last.ckpt")


if __name__ == "__main__":
    main()
