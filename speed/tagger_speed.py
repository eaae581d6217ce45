"""Compares our span tagger with LettuceDetect: training, and predicting.

Both load the same random ModernBERT (6 layers of 256, window 128, each third layer global; `--layers 22 --hidden-size
768` are ModernBERT-base's) and take the same examples in turns: in CPU-seconds of one thread, or with `--device cuda`
in seconds on a GPU. In training the time is taken from the first batch to the last; batches hold 8 examples.

Needs: LettuceDetect in another environment, named by FAITHKIT_LETTUCE_PYTHON (peers/README.md); skipped without it.

FAITHKIT_LETTUCE_PYTHON=~/lettuce/bin/python python -m speed.tagger_speed
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from critic import Tagger
from critic.tagger.module import TaggerModule
from critic.tagger.options import TaggerOptions
from critic.tagger.settings import Settings, tagger_labels
from critic.tagger.span_calibration import SpanCalibration
from critic.weights import load_classifier
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.files.model_folder import write_folder
from faithkit.hardware import best_precision
from faithkit.records import Example
from speed.measure import BenchmarkParser, alternate, clock_of, rates, table, write_results
from speed.samples import TAGGED, make_tagged, train_one_epoch, write_modernbert

BATCH_SIZE, LR, LONGEST = 8, 1e-5, 4096
NUM_FITTED, MARKED_SHARE = 16, 0.05  # the bias of the random head is fitted on examples to mark a share of tokens
VARIABLE = "FAITHKIT_LETTUCE_PYTHON"
SCRIPT = Path(__file__).parent / "peers" / "lettuce_worker.py"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # none of our packages
VERSIONS = "from importlib.metadata import version as v; print(*(f'{n} {v(n)}' for n in ('lettucedetect', 'torch')))"
PRECISIONS = {"cpu": ("32-true", "bf16", "int8"), "cuda": ("32-true", "bf16")}  # of predictions
UNITS = {"cpu": "examples a CPU-second", "cuda": "examples a second"}
PLACES = {"cpu": "", "cuda": " on a GPU"}
Work = Callable[[int, int], float]  # processes the rows from a start to a stop and returns the CPU-seconds


def main() -> None:
    """Writes weights and rows once, then compares."""
    parser = BenchmarkParser(__doc__, rounds=4, examples=96)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--device", choices=PRECISIONS, default="cpu")
    options = parser.parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("not run: there is no CUDA device", file=sys.stderr)
        return
    if VARIABLE not in os.environ:
        print(f"skipped: {VARIABLE} is not set; hint: speed/peers/README.md", file=sys.stderr)
        return
    torch.set_num_threads(1)
    versions = subprocess.run([lettuce_python(), "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FAITHKIT_HOME"] = str(folder / "home")  # an empty cache of encodings
        weights = write_modernbert(folder / "encoder", hidden_size=options.hidden_size, num_layers=options.layers)
        examples = make_tagged(load_tokenizer(weights), options.examples * (options.rounds + 1))
        rows = write_rows(examples, folder / "rows.jsonl")
        about = (
            f"{options.examples} examples a round, {TAGGED}; a random ModernBERT, {options.layers} layers of "
            f"{options.hidden_size}; {versions.strip()}."
        )
        compare_training(weights, examples, rows, about, options)
        theirs = write_random_tagger(weights, examples, folder / "peer")
        ours = convert_tagger(theirs, folder / "ours")
        compare_prediction(ours, theirs, examples, rows, about, options)


def compare_training(
    weights: str, examples: list[Example], rows: Path, about: str, options: argparse.Namespace
) -> None:
    """Compares examples a CPU-second in LettuceDetect's Trainer and in ours."""
    with lettuce_worker("--weights", weights, "--rows", str(rows), device=options.device) as ask:
        sides: dict[str, Work] = {"LettuceDetect": partial(ask, "train")}
        for precision in dict.fromkeys(("32-true", best_precision(options.device))):
            sides[f"ours, {precision}"] = partial(train, weights, examples, precision, options.device)
        taken = alternate(next_rows(sides, options.examples), options.rounds, warm_up=True)
    about += f" Batches of {BATCH_SIZE}, AdamW. LettuceDetect tokenises in every epoch, ours once before the first."
    header = ["side", UNITS[options.device], "against LettuceDetect"]
    write_results(
        f"Tagger: training{PLACES[options.device]}",
        about,
        table(header, rates(taken, options.examples)),
        quick=options.quick,
    )


def train(weights: str, examples: list[Example], precision: str, device: str, start: int, stop: int) -> float:
    """Trains our tagger on some examples; returns the seconds."""
    encoder = SpanEncoder(tokenizer=load_tokenizer(weights), max_length=LONGEST, packed=True)
    build = partial(TaggerModule, TaggerOptions(weights=weights, packed=True))
    some = examples[start:stop]
    about = {"precision": precision, "monitor": "char_f1", "device": device}
    return train_one_epoch(encoder, build, some, BATCH_SIZE, LR, **about)[1]


def compare_prediction(
    ours: str, theirs: str, examples: list[Example], rows: Path, about: str, options: argparse.Namespace
) -> None:
    """Compares examples a second through both APIs."""
    read_clock = clock_of(options.device)

    def predict(tagger: Any, start: int, stop: int) -> float:
        begin, part = read_clock(), examples[start:stop]
        tagger.predict([e.knowledge for e in part], [e.response for e in part])
        return read_clock() - begin

    with lettuce_worker("--model", theirs, "--rows", str(rows), device=options.device) as ask:
        sides: dict[str, Work] = {"LettuceDetect, predict_prompt_batch": partial(ask, "predict")}
        for name in PRECISIONS[options.device]:
            sides[f"ours, {name}"] = partial(predict, Tagger.load(ours, device=options.device, precision=name))
        taken = alternate(next_rows(sides, options.examples), options.rounds, warm_up=True)
    header = ["side", UNITS[options.device], "against LettuceDetect"]
    title = f"Tagger: predicting{PLACES[options.device]}, {options.layers} layers of {options.hidden_size}"
    write_results(title, about, table(header, rates(taken, options.examples)), quick=options.quick)


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


def convert_tagger(weights: str, folder: Path) -> str:
    """Writes the same weights as a folder of ours, with LettuceDetect's threshold of one half."""
    labels = tagger_labels(False)
    settings = Settings(labels=labels, max_length=LONGEST, calibration=SpanCalibration(), origin={})
    write_folder(
        folder, load_classifier(weights, labels, of_tokens=True), load_tokenizer(weights), settings.to_sidecar()
    )
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


@contextmanager
def lettuce_worker(*arguments: str, device: str = "cpu") -> Iterator[Callable[..., Any]]:
    """Starts a worker process; yields a function that sends it one line of words and returns its answer."""
    with tempfile.TemporaryFile("w+") as log:
        limits = ["--lr", str(LR), "--batch-size", str(BATCH_SIZE), "--max-length", str(LONGEST)]
        command = [lettuce_python(), str(SCRIPT), *limits, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        environment = ENVIRONMENT if device == "cuda" else ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(command, env=environment, **pipes)

        def ask(*words: object) -> Any:
            assert process.stdin is not None and process.stdout is not None
            print(*words, file=process.stdin, flush=True)
            if not (line := process.stdout.readline()):
                log.seek(0)
                sys.exit(f"error: LettuceDetect's worker ended:\n{log.read()[-3000:]}")
            return json.loads(line)

        try:
            yield ask
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
