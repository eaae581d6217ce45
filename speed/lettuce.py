"""Runs LettuceDetect in a separate environment, on the same random weights and rows as our tagger."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from faithkit.records import Example
from speed.measure import BenchmarkParser
from speed.worker import start_worker

BATCH_SIZE, LR, LONGEST = 8, 1e-5, 4096
NUM_FITTED, MARKED_SHARE = 16, 0.05  # the bias of the random head is fitted on examples to mark a share of tokens
VARIABLE = "FAITHKIT_LETTUCE_PYTHON"
SCRIPT = Path(__file__).parent / "peers" / "lettuce_worker.py"
VERSIONS = "from importlib.metadata import version as v; print(*(f'{n} {v(n)}' for n in ('lettucedetect', 'torch')))"
UNITS = {"cpu": "examples a CPU-second", "cuda": "examples a second"}
PLACES = {"cpu": "", "cuda": " on a GPU"}
Work = Callable[[int, int], float]  # processes the rows from a start to a stop and returns the seconds


class LettuceParser(BenchmarkParser):
    """Adds the size of the model, the device and LettuceDetect's versions; ends the program if a side cannot run."""

    def __init__(self, description: str | None, *, rounds: int, examples: int):
        super().__init__(description, rounds=rounds, examples=examples)
        self.add_argument("--hidden-size", type=int, default=256)
        self.add_argument("--layers", type=int, default=6)
        self.add_argument("--device", choices=UNITS, default="cpu")

    def parse(self) -> argparse.Namespace:
        options = super().parse()
        if options.device == "cuda" and not torch.cuda.is_available():
            sys.exit(print("not run: there is no CUDA device", file=sys.stderr))
        if VARIABLE not in os.environ:
            sys.exit(print(f"skipped: {VARIABLE} is not set; hint: speed/peers/README.md", file=sys.stderr))
        command = [lettuce_python(), "-c", VERSIONS]
        options.versions = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return options


def next_rows(sides: dict[str, Work], size: int) -> dict[str, Callable[[], float]]:
    """Makes sides that process the next rows at each call."""
    starts = dict.fromkeys(sides, 0)

    def process(name: str) -> float:
        start = starts[name]
        starts[name] += size
        return sides[name](start, start + size)

    return {name: partial(process, name) for name in sides}


def write_random_tagger(weights: str, examples: Sequence[Example], folder: Path) -> str:
    """Writes the encoder with a random head of two classes that marks a twentieth of the tokens, as trained ones do."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForTokenClassification.from_pretrained(weights, num_labels=2).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)  # far enough from the threshold that rounding decides nothing
        pairs = [tokenizer(e.knowledge, e.response, return_tensors="pt") for e in examples[:NUM_FITTED]]
        odds = torch.cat([logits[:, 1] - logits[:, 0] for logits in (model(**pair).logits[0] for pair in pairs)])
        model.classifier.bias[1] -= odds.quantile(1 - MARKED_SHARE)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_rows(examples: Sequence[Example], path: Path) -> Path:
    """Writes examples as JSON lines for the worker."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            labels = [{"start": span.start, "end": span.end} for span in example.spans or ()]
            row = {"prompt": example.knowledge, "answer": example.response, "labels": labels}
            file.write(json.dumps(row) + "\n")
    return path


def lettuce_python() -> str:
    """Returns the path of LettuceDetect's Python; ends the program if it does not exist."""
    found = Path(os.environ[VARIABLE]).expanduser()
    if not found.exists():
        sys.exit(f"error: {VARIABLE}={found} does not exist; hint: speed/peers/README.md")
    return str(found)


def lettuce_worker(*arguments: str, device: str = "cpu") -> AbstractContextManager[Callable[..., Any]]:
    """Starts LettuceDetect as a worker process (`start_worker`)."""
    limits = ["--lr", str(LR), "--batch-size", str(BATCH_SIZE), "--max-length", str(LONGEST)]
    environment = {} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    return start_worker([lettuce_python(), str(SCRIPT), *limits, *arguments], **environment)
