"""A worker that trains with LettuceDetect's own Trainer, a chunk of rows at a time.

PEER_PYTHON lettuce_train.py --weights FOLDER --rows ROWS

`START STOP` on a line of the input trains one epoch over these rows and answers the CPU-seconds that lie between the
first batch and the last: loading the data, its evaluation after the epoch and the saved checkpoint do not count. The
model and the optimizer live on from one chunk to the next.
"""

import argparse
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from lettuce_worker import cpu_seconds, loader, read_rows, serve
from lettucedetect.models.trainer import Trainer
from transformers import AutoModelForTokenClassification, AutoTokenizer


class Timed:
    """A loader that remembers the CPU-seconds between asking for its first batch and being done with its last."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.dataset, self.seconds = inner, inner.dataset, 0.0

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        begin = cpu_seconds()
        yield from self.inner
        self.seconds = cpu_seconds() - begin


def main() -> None:
    """Loads, then waits for work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = read_rows(options.rows)
    tokenizer = AutoTokenizer.from_pretrained(options.weights)
    model = AutoModelForTokenClassification.from_pretrained(options.weights, num_labels=2)
    limits = {"batch_size": options.batch_size, "max_length": options.max_length}
    few = loader(rows[:2], tokenizer, shuffle=False, **limits)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, tokenizer, few, few, epochs=1, learning_rate=options.lr, save_path=folder)

        def run(start: str, stop: str) -> float:
            timed = Timed(loader(rows[int(start) : int(stop)], tokenizer, shuffle=True, **limits))
            trainer.train_loader = timed
            trainer.train()
            return timed.seconds

        serve(run)


if __name__ == "__main__":
    main()
