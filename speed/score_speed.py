"""Compares scoring in transformers' pipeline, with our `Critic` or `Tagger` in fp32, bf16 and int8, and in onnxruntime.

A second section has what bf16, int8 and onnxruntime change: metrics and probabilities on the embedded test split, and
the peak memory of a process that scores 32 of its rows.

Needs: the `onnx` extra. Without --critic and --tagger the demo's critic is trained first (once, minutes).

python -m speed.score_speed
python -m speed.score_speed --critic RUN --tagger RUN        runs or hf/ folders
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import pipeline

from critic import Critic, Tagger
from critic.runtime import ONNX
from data_modules.embedded.corpus import generate
from faithkit.files.cache import cache_dir
from faithkit.files.model_folder import find_folder
from faithkit.metrics.classification import evaluate_labels, join_outcomes
from faithkit.metrics.span_metrics import evaluate_spans, join_spans
from faithkit.records import HALLUCINATED, Example, Prediction
from speed.measure import ROOT, BenchmarkParser, alternate, rates, require, run_process, table, write_results
from speed.samples import LONGEST, PAIRS, TAGGED, make_pairs, make_tagged

CLASSES: Mapping[str, Any] = {"critic": Critic, "tagger": Tagger}
PRECISIONS = ("32-true", "bf16", "int8")
FORMATS = {"onnx": "fp32", "onnx_int8": "int8"}  # formats of export.py
Predictions = Mapping[str, Prediction]
METRICS = {"critic": ("macro_f1", "auroc"), "tagger": ("char_f1", "response_f1")}
PEAK = """import sys
from critic import Critic, Tagger
from data_modules.embedded.corpus import generate
kind, path, precision = sys.argv[1:]
detector = {"critic": Critic, "tagger": Tagger}[kind].load(path, device="cpu", precision=precision)
list(detector.predict_examples(list(generate("test", 32))))
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])"""


class DetectorParser(BenchmarkParser):
    """Adds `--critic` and `--tagger`; without both the demo's critic is trained first. One thread is used."""

    def __init__(self, description: str | None, **sizes: int):
        super().__init__(description, **sizes)
        for kind in CLASSES:
            self.add_argument(f"--{kind}", help="a run or hf/ folder")

    def parse(self) -> argparse.Namespace:
        """Parses the command line; `checkpoints` has the detectors by kind."""
        options = super().parse()
        torch.set_num_threads(1)
        options.checkpoints = {kind: path for kind in CLASSES if (path := getattr(options, kind))}
        if not options.checkpoints:
            run = cache_dir("speed") / "critic"
            if not (run / "hf").exists():
                print("training the demo's critic (once, minutes)", file=sys.stderr, flush=True)
                shutil.rmtree(run, ignore_errors=True)  # left by an interrupted training
                training = ["model=critic", "trainer=cpu", "callbacks.progress_bar=false", f"run_dir={run}"]
                run_process([sys.executable, "train.py", *training])
            options.checkpoints = {"critic": str(run)}
        return options


def predict(detector: Any, examples: Sequence[Example]) -> Predictions:
    """Predicts examples; returns the predictions by id."""
    return {prediction.id: prediction for prediction in detector.predict_examples(examples)}


def main() -> None:
    """Measures each detector."""
    options = DetectorParser(__doc__, timed=128, judged=1000).parse()
    for kind, checkpoint in options.checkpoints.items():
        with tempfile.TemporaryDirectory() as folder:
            measure(kind, checkpoint, Path(folder), options)


def measure(kind: str, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Times all ways to run a detector in turns, compares them, and writes the sections."""
    require("onnx", "onnxscript", "onnxruntime", hint="pip install -e '.[onnx]'")
    exported = {f"torch, {name}": (checkpoint, name) for name in PRECISIONS}  # the first in fp32
    for name, precision in FORMATS.items():
        path = str(folder / name)
        run_process([sys.executable, "export.py", f"checkpoint={checkpoint}", f"output_dir={path}", f"format={name}"])
        exported[f"onnxruntime, {precision}"] = (path, ONNX)
    detectors = {
        name: CLASSES[kind].load(path, device="cpu", precision=precision)
        for name, (path, precision) in exported.items()
    }
    make, lengths = (make_pairs, PAIRS) if kind == "critic" else (make_tagged, TAGGED)
    examples = make(next(iter(detectors.values())).encoder.tokenizer, options.timed)
    sides: dict[str, Callable[[], object]] = {}
    if kind == "critic":
        # As its documentation shows it, in batches of 32.
        model = str(find_folder(checkpoint))
        classify: Any = pipeline("text-classification", model, dtype=torch.float32, device="cpu", batch_size=32)

        def score() -> list[float]:
            inputs = [{"text": example.knowledge, "text_pair": example.response} for example in examples]
            scores = classify(inputs, top_k=None, truncation="only_first", max_length=LONGEST)
            return [next(one["score"] for one in labels if one["label"] == HALLUCINATED) for labels in scores]

        sides["transformers' pipeline, fp32"] = score
    sides |= {name: partial(predict, detector, examples) for name, detector in detectors.items()}
    rows = rates(alternate(sides, options.rounds, warm_up=True), len(examples))
    header = ["side", "responses a CPU-second", f"against {rows[0][0]}"]
    about = f"{len(examples)} responses; {lengths}."
    write_results(f"Scoring: {kind}", about, table(header, rows), quick=options.quick)
    compare(kind, exported, detectors, options)


def compare(
    kind: str, sides: Mapping[str, tuple[str, str]], detectors: Mapping[str, Any], options: argparse.Namespace
) -> None:
    """Compares the predictions of all ways to run a detector with those in fp32, and writes the section."""
    examples = list(generate("test", options.judged))
    predicted = {name: predict(detector, examples) for name, detector in detectors.items()}
    fp32, rows = next(iter(predicted.values())), []
    for name, found in predicted.items():
        scores = [np.array([side[e.id].score for e in examples], np.float64) for side in (found, fp32)]
        moved = np.abs(scores[0] - scores[1])
        changes = [""] * len(METRICS[kind])
        if found is not fp32:
            if kind == "critic":
                first, second = (evaluate_labels(join_outcomes(examples, side)) for side in (found, fp32))
            else:
                first, second = (evaluate_spans(join_spans(examples, side)) for side in (found, fp32))
            differences = first.subtract(second)
            metrics = (differences[metric] for metric in METRICS[kind])
            changes = [f"{100 * one.value:+.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in metrics]
        command = [sys.executable, "-c", PEAK, kind, *sides[name]]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        peak = float(done.stdout.split()[-1]) / 1024  # unlike ru_maxrss, without the peak of the parent
        rows.append([name, *changes, f"{moved.mean():.4f}, {moved.max():.3f}", f"{peak:.0f}"])
    header = ["side", *METRICS[kind], "P(hallucinated): mean, most", "peak MiB of a process that scores 32"]
    about = (
        f"{len(examples)} rows of the embedded test split; changes from fp32, of metrics in points with 95% intervals."
    )
    write_results(f"Changes by precision: {kind}", about, table(header, rows), quick=options.quick)


if __name__ == "__main__":
    main()
