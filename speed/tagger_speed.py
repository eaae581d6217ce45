"""Compares training our span tagger with training LettuceDetect's.

Both load the same random ModernBERT (6 layers of 256, window 128, each third layer global; `--layers 22 --hidden-size
768` are ModernBERT-base's) and take the same examples in turns, in batches of 8: in CPU-seconds of one thread, or with
`--device cuda` in seconds on a GPU. The time is taken from the first batch to the last.

Needs: LettuceDetect in another environment, named by FAITHKIT_LETTUCE_PYTHON (peers/README.md); skipped without it.

FAITHKIT_LETTUCE_PYTHON=~/lettuce/bin/python python -m speed.tagger_speed
"""

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from critic.tagger.module import TaggerModule
from critic.tagger.options import TaggerOptions
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.fast import best_precision
from faithkit.records import Example
from speed.gpu import gpu_name
from speed.lettuce import (
    BATCH_SIZE,
    LONGEST,
    LR,
    PLACES,
    UNITS,
    LettuceParser,
    Work,
    lettuce_worker,
    next_rows,
    write_rows,
)
from speed.measure import alternate, rates, table, write_results
from speed.samples import TAGGED, make_tagged, train_one_epoch, write_modernbert


def main() -> None:
    """Compares examples a second in LettuceDetect's Trainer and in ours."""
    options = LettuceParser(__doc__, rounds=4, examples=96).parse()
    device = options.device
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FAITHKIT_HOME"] = str(folder / "home")  # an empty cache of encodings
        weights = write_modernbert(folder / "encoder", hidden_size=options.hidden_size, num_layers=options.layers)
        examples = make_tagged(load_tokenizer(weights), options.examples * (options.rounds + 1))
        rows = write_rows(examples, folder / "rows.jsonl")
        with lettuce_worker("--weights", weights, "--rows", str(rows), device=device) as ask:
            sides: dict[str, Work] = {"LettuceDetect": partial(ask, "train")}
            for precision in dict.fromkeys(("32-true", best_precision(device))):
                sides[f"ours, {precision}"] = partial(train, weights, examples, precision, device)
            taken = alternate(next_rows(sides, options.examples), options.rounds, warm_up=True)
    about = (
        f"{options.examples} examples a round, {TAGGED}; a random ModernBERT, {options.layers} layers of "
        f"{options.hidden_size}; {options.versions}. Batches of {BATCH_SIZE}, AdamW. LettuceDetect tokenises in every "
        "epoch, ours once before the first."
    )
    lines = table(["side", UNITS[device], "against LettuceDetect"], rates(taken, options.examples))
    write_results(f"Tagger: training{PLACES[device]}", about, lines, quick=options.quick, device=gpu_name(device))


def train(weights: str, examples: list[Example], precision: str, device: str, start: int, stop: int) -> float:
    """Trains our tagger on some examples; returns the seconds."""
    encoder = SpanEncoder(tokenizer=load_tokenizer(weights), max_length=LONGEST, packed=True)
    build = partial(TaggerModule, TaggerOptions(weights=weights, packed=True))
    some = examples[start:stop]
    about: dict[str, Any] = {"precision": precision, "monitor": "char_f1", "device": device}
    return train_one_epoch(encoder, build, some, BATCH_SIZE, LR, **about)[1]


if __name__ == "__main__":
    main()
