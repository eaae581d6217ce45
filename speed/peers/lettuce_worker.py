"""Trains and predicts with LettuceDetect; run by the Python of its environment, so it imports nothing of ours.

PYTHON lettuce_worker.py --weights FOLDER (trains) or --model FOLDER (predicts) --rows ROWS

A row is a JSON line {"prompt", "answer", "labels": [{"start", "end"}]}. Each line of the input is
`WHAT START STOP` and is answered by one line of JSON. `train` trains one epoch on these rows and answers the
seconds between the first batch and the last, without loading, evaluation and checkpoint; model and optimizer stay
from one call to the next. `predict` answers the seconds of `predict_prompt_batch`, `spans` the spans that it
finds. Without a GPU these are CPU-seconds.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_clock() -> float:
    """Reads the CPU-seconds, or the time when a GPU has done its work."""
    import torch

    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


class TimedLoader:
    """A loader that keeps the seconds between the request for its first batch and the end of its last."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.dataset, self.seconds = inner, inner.dataset, 0.0

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        begin = read_clock()
        yield from self.inner
        self.seconds = read_clock() - begin


def main() -> None:
    """Loads the model, then works line by line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", help="of an encoder to train")
    parser.add_argument("--model", help="a trained detector")
    parser.add_argument("--rows", required=True)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--max-length", type=int, required=True)
    options = parser.parse_args()
    rows = [json.loads(line) for line in Path(options.rows).read_text(encoding="utf-8").splitlines()]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    work = load_trainer(rows, options) if options.weights else load_detector(rows, options)
    for line in sys.stdin:
        what, start, stop = line.split()
        print(json.dumps(work(what, rows[int(start) : int(stop)])), file=answers, flush=True)


def load_trainer(rows: list[Row], options: argparse.Namespace) -> Callable[[str, list[Row]], float]:
    """Builds its Trainer, with the loader and the collator of its training script."""
    import torch
    from lettucedetect import HallucinationDataset, HallucinationSample
    from lettucedetect.models.trainer import Trainer
    from torch.utils.data import DataLoader
    from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(options.weights)
    model = AutoModelForTokenClassification.from_pretrained(options.weights, num_labels=2)
    collator = DataCollatorForTokenClassification(tokenizer=tokenizer, label_pad_token_id=-100)

    def load(some: list[Row]) -> Any:
        texts = [(row["prompt"], row["answer"], row["labels"], "train", "QA", "ragtruth", "en") for row in some]
        dataset = HallucinationDataset([HallucinationSample(*one) for one in texts], tokenizer, options.max_length)
        return DataLoader(dataset, batch_size=options.batch_size, shuffle=True, collate_fn=collator)

    few, folder = load(rows[:2]), tempfile.mkdtemp()
    trainer = Trainer(model, tokenizer, few, few, epochs=1, learning_rate=options.lr, save_path=folder)

    def train(what: str, some: list[Row]) -> float:
        trainer.train_loader = timed = TimedLoader(load(some))
        trainer.train()
        return timed.seconds

    return train


def load_detector(rows: list[Row], options: argparse.Namespace) -> Callable[[str, list[Row]], Any]:
    """Loads its detector."""
    from lettucedetect import HallucinationDetector

    detector = HallucinationDetector(method="transformer", model_path=options.model, max_length=options.max_length)

    def predict(what: str, some: list[Row]) -> Any:
        begin = read_clock()
        sides = ([row[side] for row in some] for side in ("prompt", "answer"))
        found = detector.predict_prompt_batch(*sides, output_format="spans")
        if what == "spans":
            return [[(span["start"], span["end"]) for span in spans] for spans in found]
        return read_clock() - begin

    return predict


if __name__ == "__main__":
    main()
