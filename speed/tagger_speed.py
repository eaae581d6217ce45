"""Compares our span tagger with LettuceDetect: training, predicting in bulk and one by one, and the cold start.

Both load the same random ModernBERT (6 layers of 256, window 128, each third layer global; `--layers 22 --hidden-size
768` are ModernBERT-base's) and take the same examples, in turns, a chunk each. In training the time
is taken from the first batch to the last; batches hold 8 examples.

Needs: LettuceDetect in an environment of its own, named by FAITHKIT_LETTUCE_PYTHON (peers/README.md); without it the
program says so and ends.

FAITHKIT_LETTUCE_PYTHON=... python -m speed.tagger_speed             all of it (peers/README.md)
FAITHKIT_LETTUCE_PYTHON=... python -m speed.tagger_speed --parts train
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.records import Example
from speed.measure import Ratio, alternate, cpu_seconds, report, table
from speed.mixed import InMemory
from speed.own_training import train_one_epoch
from speed.peer import LETTUCE, SCRIPTS, Peer, once, peer, write_rows
from speed.tagged import DESCRIPTION, mixed_tagged, write_modernbert, write_peer_tagger

BATCH_SIZE, LR, LONGEST = 8, 1e-5, 4096
ROOT = Path(__file__).resolve().parent.parent
FIRST_PREDICTION = """import json, sys
from critic import Tagger
row = json.loads(open(sys.argv[2], encoding="utf-8").readline())
tagged = Tagger.load(sys.argv[1], device="cpu").predict(context=row["prompt"], answer=row["answer"])
print(len(tagged.spans), "spans")"""


def main() -> None:
    """Writes weights and rows once, then takes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = ("train", "predict", "start")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--examples", type=int, default=96, help="of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()

    if LETTUCE.variable not in os.environ:
        print(f"skipped: {LETTUCE.missing}", file=sys.stderr)
        return
    LETTUCE.python()  # before anything is computed
    import torch

    from data_modules.encoding.tokens import load_tokenizer

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FAITHKIT_HOME"] = str(folder / "home")  # nothing is encoded already
        weights = write_modernbert(folder / "encoder", hidden_size=options.hidden_size, num_layers=options.layers)
        examples = mixed_tagged(load_tokenizer(weights), options.examples * (options.rounds + 1))
        rows = write_rows(examples, folder / "rows.jsonl")
        if "train" in options.parts:
            training(weights, examples, rows, options)
        if {"predict", "start"} & set(options.parts):
            theirs = write_peer_tagger(weights, examples, folder / "peer")
            own = write_tagger(theirs, folder / "ours")
            if "predict" in options.parts:
                prediction(own, theirs, examples, rows, options)
            if "start" in options.parts:
                cold_start(own, theirs, rows, options)


class Turns:
    """Gives a side its next rows each time it is called."""

    def __init__(self, size: int, work: Callable[[int, int], float]) -> None:
        self.size, self.work, self.start = size, work, 0

    def __call__(self) -> float:
        start, self.start = self.start, self.start + self.size
        return self.work(start, self.start)


def training(weights: str, examples: list[Example], rows: Path, options: argparse.Namespace) -> None:
    """Compares examples a CPU-second in their Trainer and in ours."""
    from faithkit.hardware import best_precision

    automatic = best_precision("cpu")
    encoding: dict[str, list[float]] = {}

    def own(precision: str) -> Callable[[int, int], float]:
        def work(start: int, stop: int) -> float:
            encoded, trained = train(weights, examples[start:stop], precision)
            encoding.setdefault(precision, []).append(encoded)
            return trained

        return work

    arguments = ["--weights", weights, "--rows", str(rows), "--batch-size", str(BATCH_SIZE), "--lr", str(LR)]
    with peer(LETTUCE, "lettuce_train.py", *arguments) as worker:
        sides: dict[str, Callable[[int, int], float]] = {"LettuceDetect": worker.ask, "ours, fp32": own("32-true")}
        if automatic != "32-true":
            sides[f"ours, {automatic}"] = own(automatic)
        taken = alternate(turns(sides, options), options.rounds, warm_up=True)
    once_encoded = encoding["32-true"][1:]  # the first is the warm-up's
    taken["ours, fp32, tokenising included"] = [a + b for a, b in zip(taken["ours, fp32"], once_encoded, strict=True)]
    lines = [
        f"{options.examples} examples a round, {DESCRIPTION}; a random ModernBERT, {options.layers} layers of "
        f"{options.hidden_size}; batches of "
        f"{BATCH_SIZE}, AdamW. LettuceDetect tokenises in every epoch, we once before the first.",
        figures(taken, options.examples),
        f"LettuceDetect in {LETTUCE.versions()}.",
    ]
    report("Tagger: training", "\n\n".join(lines))


def turns(sides: dict[str, Callable[[int, int], float]], options: argparse.Namespace) -> dict[str, Turns]:
    return {name: Turns(options.examples, work) for name, work in sides.items()}


def figures(taken: dict[str, list[float]], count: int) -> str:
    """Tabulates each side's rate, and its ratio to LettuceDetect's."""
    first = next(iter(taken.values()))
    rows = [[name, f"{count / np.median(s):.1f}", Ratio.of(first, s)] for name, s in taken.items()]
    return table(["side", "examples a CPU-second", f"against {next(iter(taken))}"], rows)


def train(weights: str, examples: list[Example], precision: str) -> tuple[float, float]:
    """Encodes, then trains one epoch in our Trainer with its callbacks; returns the CPU-seconds of both."""
    from critic.tagger.module import TaggerModule
    from critic.tagger.options import TaggerOptions
    from data_modules.data_module import DataModule
    from data_modules.encoding.spans import SpanEncoder
    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.training.options import OptimizerOptions
    from faithkit.training.trainer import seed_and_threads

    seed_and_threads(seed=0, num_threads=1)
    encoder = SpanEncoder(tokenizer=load_tokenizer(weights), max_length=LONGEST, packed=True)
    data = DataModule([(InMemory(examples), 1.0)], encoder, batch_size=BATCH_SIZE)
    begin = cpu_seconds()
    data.setup()
    encoded = cpu_seconds() - begin
    module = TaggerModule(
        TaggerOptions(weights=weights, packed=True),
        OptimizerOptions(lr=LR, weight_decay=0.01, warmup=0.1, schedule="linear"),
        num_steps=data.num_batches,
        dataset="mixed",
    )
    return encoded, train_one_epoch(data, module, precision=precision, monitor="validation/mixed/char_f1")


def write_tagger(weights: str, folder: Path) -> str:
    """Writes the same weights as a folder of ours, with LettuceDetect's threshold of one half."""
    from critic.tagger.settings import Settings, tagger_labels
    from critic.tagger.span_calibration import SpanCalibration
    from critic.weights import load_token_classifier
    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.files.model_folder import write_folder

    labels = tagger_labels(False)
    settings = Settings(labels=labels, max_length=LONGEST, calibration=SpanCalibration(), origin={})
    write_folder(folder, load_token_classifier(weights, labels), load_tokenizer(weights), settings.to_sidecar())
    return str(folder)


def prediction(own: str, theirs: str, examples: list[Example], rows: Path, options: argparse.Namespace) -> None:
    """Compares examples a CPU-second through both APIs, many at once and one by one, and the spans that they find."""
    from critic import Tagger

    taggers = {name: Tagger.load(own, device="cpu", precision=name) for name in ("32-true", "bf16", "int8")}

    def bulk(model: Any) -> Callable[[int, int], float]:
        def work(start: int, stop: int) -> float:
            part, begin = examples[start:stop], cpu_seconds()
            model.predict(context=[e.knowledge for e in part], answer=[e.response for e in part])
            return cpu_seconds() - begin

        return work

    def single(model: Any) -> Callable[[int, int], float]:
        def work(start: int, stop: int) -> float:
            begin = cpu_seconds()
            for e in examples[start:stop]:
                model.predict(context=e.knowledge, answer=e.response)
            return cpu_seconds() - begin

        return work

    with peer(
        LETTUCE, "lettuce_predict.py", "--model", theirs, "--rows", str(rows), "--max-length", str(LONGEST)
    ) as worker:
        bulk_sides = {"LettuceDetect, predict_prompt_batch": peer_side(worker, "batch")}
        bulk_sides |= {f"ours, {name}, lists": bulk(tagger) for name, tagger in taggers.items()}
        single_sides = {"LettuceDetect, predict": peer_side(worker, "single")}
        single_sides |= {f"ours, {name}, one by one": single(tagger) for name, tagger in taggers.items()}
        in_bulk = alternate(turns(bulk_sides, options), options.rounds, warm_up=True)
        by_one = alternate(turns(single_sides, options), options.rounds, warm_up=True)
        agreement = "; ".join(
            f"in {name} {agree(tagger, worker, examples[: options.examples])}" for name, tagger in taggers.items()
        )
    lines = [
        f"{options.examples} examples a round, {DESCRIPTION}; a random ModernBERT, {options.layers} layers of "
        f"{options.hidden_size}, with the same weights on both sides.",
        figures(in_bulk, options.examples),
        figures(by_one, options.examples),
        f"Characters of {options.examples} answers that both mark, of those that either side marks: {agreement}.",
        f"LettuceDetect in {LETTUCE.versions()}.",
    ]
    shape = (
        ""
        if (options.layers, options.hidden_size) == (6, 256)
        else f", {options.layers} layers of {options.hidden_size}"
    )
    report(f"Tagger: predicting{shape}", "\n\n".join(lines))


def peer_side(worker: Peer, way: str) -> Callable[[int, int], float]:
    """Makes a side that has the peer's worker predict."""
    return lambda start, stop: worker.ask(way, start, stop)["cpu_seconds"]


def agree(tagger: Any, worker: Peer, examples: list[Example]) -> str:
    """Counts the characters that both mark, of those that either marks; white space does not count."""
    tagged = tagger.predict(context=[e.knowledge for e in examples], answer=[e.response for e in examples])
    spans = worker.ask("spans", 0, len(examples))
    both = either = 0
    for example, mine, other in zip(examples, tagged, spans, strict=True):
        visible = {i for i, character in enumerate(example.response) if not character.isspace()}
        ours = {i for span in mine.spans for i in range(span.start, span.end)} & visible
        theirs = {i for start, end in other for i in range(start, end)} & visible
        both, either = both + len(ours & theirs), either + len(ours | theirs)
    return f"{both:,} of {either:,}"


def cold_start(own: str, theirs: str, rows: Path, options: argparse.Namespace) -> None:
    """Times processes from their start to the end of their first prediction."""
    commands = {
        "LettuceDetect": [
            LETTUCE.python(), str(SCRIPTS / "lettuce_predict.py"), "--model", theirs, "--rows", str(rows), "--once",
        ],
        "ours": [sys.executable, "-c", FIRST_PREDICTION, own, str(rows)],
    }  # fmt: skip
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(-1, options.starts):  # the first of each only warms the disk's cache
        for name in list(commands)[:: 1 if number % 2 else -1]:
            seconds = once(commands[name], ROOT)
            if number >= 0:
                taken[name].append(seconds)
                print(f"  start {number + 1}: {name} {seconds[0]:.2f} s", file=sys.stderr, flush=True)
    cells = []
    for name, pairs in taken.items():
        wall, cpu = ([pair[side] for pair in pairs] for side in (0, 1))
        others = [[pair[side] for pair in taken["LettuceDetect"]] for side in (0, 1)]
        ratios = [Ratio.of(others[0], wall), Ratio.of(others[1], cpu)]
        cells.append([name, f"{np.median(wall):.2f}", ratios[0], f"{np.median(cpu):.2f}", ratios[1]])
    lines = [
        "From the start of a process to the end of its first prediction, with the model in a local folder; in turns.",
        table(["side", "seconds", "LettuceDetect / side", "CPU-seconds", "LettuceDetect / side"], cells),
        f"LettuceDetect in {LETTUCE.versions()}.",
    ]
    report("Tagger: cold start", "\n\n".join(lines))


if __name__ == "__main__":
    main()
