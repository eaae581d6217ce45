"""Compares our span tagger with LettuceDetect: training, and tagging lists of answers.

Both load the same random ModernBERT (6 layers of 256, window 128, each third layer global; `--layers 22 --hidden-size
768` are ModernBERT-base's) and take the same examples in turns: in CPU-seconds of one thread, or with `--device cuda`
in seconds on a GPU. Training runs in batches of 8, and its time is taken from the first batch to the last. The tagged
answers are those of RAGTruth if `--ragtruth` names the folder of its files, else made ones. ATEN_CPU_CAPABILITY=avx2
and ONEDNN_MAX_CPU_ISA=AVX2 measure both sides without AVX-512.

Needs: LettuceDetect in another environment, named by FAITHKIT_LETTUCE_PYTHON (peers/README.md); skipped without it.

FAITHKIT_LETTUCE_PYTHON=~/lettuce/bin/python python -m speed.tagger_speed --parts predict --ragtruth FOLDER
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from critic import Tagger
from critic.options import TaggerOptions
from critic.tagger.module import TaggerModule
from critic.tagger.span_calibration import Settings, SpanCalibration, tagger_labels, widen_to_words
from critic.weights import load_classifier
from data_modules.datasets.ragtruth import RagTruth
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.rows import ReadReport
from faithkit.fast import best_precision, computes_in_bf16
from faithkit.files.model_folder import write_folder
from faithkit.records import Example
from speed.measure import BenchmarkParser, alternate, clock_of, gpu_name, rates, start_worker, table, write_results
from speed.samples import TAGGED, make_tagged, train_one_epoch, write_modernbert

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


def main() -> None:
    """Compares what `--parts` names."""
    parser = LettuceParser(__doc__, rounds=4, examples=96)
    parser.add_argument("--parts", nargs="+", choices=("train", "predict"), default=["train", "predict"])
    parser.add_argument("--ragtruth", help="the folder of response.jsonl and source_info.jsonl")
    parser.add_argument("--machine", help="ends a section's title: results of several machines stay side by side")
    options = parser.parse()
    torch.set_num_threads(1)
    if "train" in options.parts:
        compare_training(options)
    if "predict" in options.parts:
        compare_predicting(options)


def compare_training(options: argparse.Namespace) -> None:
    """Compares examples a second in LettuceDetect's Trainer and in ours."""
    device = options.device
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


def compare_predicting(options: argparse.Namespace) -> None:
    """Writes weights and rows once, then compares."""
    device, capability = options.device, torch.backends.cpu.get_cpu_capability()
    answers: list[Example] = []
    if options.ragtruth:  # answers of one source follow each other
        source = RagTruth(path=options.ragtruth, official_split=False, quality="all")
        answers = [example for example, _ in source.read_split("all", ReadReport())]
    with tempfile.TemporaryDirectory() as name:
        folder, size = Path(name), {"hidden_size": options.hidden_size, "num_layers": options.layers}
        weights = write_modernbert(folder / "encoder", examples=answers, **size)
        count = options.examples * (options.rounds + 1)
        examples = answers[:count] or make_tagged(load_tokenizer(weights), count)
        rows = write_rows(examples, folder / "rows.jsonl")
        theirs = write_random_tagger(weights, examples, folder / "peer")
        # The same weights as a folder of ours, with LettuceDetect's threshold of one half.
        labels, ours = tagger_labels(False), folder / "ours"
        settings = Settings(labels=labels, max_length=LONGEST, calibration=SpanCalibration(), origin={})
        model = load_classifier(theirs, labels, of_tokens=True)
        write_folder(ours, model, load_tokenizer(theirs), settings.to_sidecar())
        precisions = ["32-true", *(["bf16"] * computes_in_bf16(device)), *(["int8"] * (device == "cpu"))]
        taggers = {one: Tagger.load(str(ours), device=device, precision=one) for one in precisions}
        with lettuce_worker("--model", theirs, "--rows", str(rows), device=device) as ask:
            sides: dict[str, Work] = {"LettuceDetect, predict_prompt_batch": partial(ask, "predict")}
            sides |= {f"ours, {one}": partial(predict, tagger, examples) for one, tagger in taggers.items()}
            taken = alternate(next_rows(sides, options.examples), options.rounds, warm_up=True)
            found = ask("spans", 0, options.examples)
    shared = [f"{compare_spans(found, taggers[one], examples[: options.examples])} in {one}" for one in precisions]
    about = (
        f"{options.examples} examples a round, {'answers of RAGTruth in their order' if answers else TAGGED}; "
        f"a random ModernBERT, {options.layers} layers of {options.hidden_size}; {options.versions}; {capability}. "
        f"Characters that both mark, without white space, of those that either marks: {', '.join(shared)}."
    )
    title = f"Tagger: predicting{PLACES[device]}, {options.layers} layers of {options.hidden_size}"
    title += ", RAGTruth" * bool(answers) + ", without AVX-512" * (capability == "AVX2")
    title += f", {options.machine}" if options.machine else ""
    lines = table(["side", UNITS[device], "against LettuceDetect"], rates(taken, options.examples, digits=2))
    write_results(title, about, lines, quick=options.quick, device=gpu_name(device))


def train(weights: str, examples: list[Example], precision: str, device: str, start: int, stop: int) -> float:
    """Trains our tagger on some examples; returns the seconds."""
    encoder = SpanEncoder(tokenizer=load_tokenizer(weights), max_length=LONGEST, packed=True)
    build = partial(TaggerModule, TaggerOptions(weights=weights, packed=True))
    some = examples[start:stop]
    about: dict[str, Any] = {"precision": precision, "monitor": "char_f1", "device": device}
    return train_one_epoch(encoder, build, some, BATCH_SIZE, LR, **about)[1]


def predict(tagger: Tagger, examples: Sequence[Example], start: int, stop: int) -> float:
    """Tags some examples; returns the seconds."""
    read_clock, part = clock_of(tagger.device.type), examples[start:stop]
    begin = read_clock()
    tagger.predict([one.knowledge for one in part], [one.response for one in part])
    return read_clock() - begin


def compare_spans(found: list[list[tuple[int, int]]], tagger: Tagger, examples: Sequence[Example]) -> str:
    """Counts the characters that both sides mark, of those that either marks; their spans extend to words, as ours."""
    texts = [one.response for one in examples]
    owner = np.repeat(np.arange(len(found)), [len(spans) for spans in found])
    start, end = np.array([span for spans in found for span in spans], np.int64).reshape(-1, 2).T
    theirs = zip(owner.tolist(), *widen_to_words(start, end, owner, texts), strict=True)
    tagged = tagger.predict([one.knowledge for one in examples], texts)
    ours = ((row, span.start, span.end) for row, one in enumerate(tagged) for span in one.spans)
    marked = [
        {(row, i) for row, begin, stop in side for i in range(begin, stop) if not texts[row][i].isspace()}
        for side in (ours, theirs)
    ]
    return f"{len(marked[0] & marked[1]):,} of {len(marked[0] | marked[1]):,}"


if __name__ == "__main__":
    main()
