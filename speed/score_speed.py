"""Compares scoring in transformers' pipeline, with our `Critic` or `Tagger` in fp32, bf16 and int8, and in onnxruntime.

Also compares the metrics and probabilities of each with fp32 on rows of the embedded test split, and measures the peak
memory of a process that scores 32 of them.

Needs: the `onnx` extra. Without --critic and --tagger the demo's critic is trained first (once, minutes).

python -m speed.score_speed
python -m speed.score_speed --critic RUN --tagger RUN        runs or hf/ folders
"""

import argparse
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
from critic.runtime.onnx_model import ONNX
from data_modules.embedded.corpus import generate
from faithkit.files.model_folder import find_folder
from faithkit.metrics.classification import compare_outcomes
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.span_metrics import compare_spans
from faithkit.records import HALLUCINATED, Example, Prediction
from speed.measure import ROOT, BenchmarkParser, alternate, rates, require, run_process, table, write_results
from speed.samples import LONGEST, PAIRS, TAGGED, load_demo_critic, make_pairs, make_tagged

METRICS = {"critic": ("macro_f1", "auroc"), "tagger": ("char_f1", "response_f1")}
PRECISIONS = ("32-true", "bf16", "int8")
FORMATS = {"onnx": "fp32", "onnx_int8": "int8"}  # formats of export.py
PEAK = """import sys
from critic import Critic, Tagger
from data_modules.embedded.corpus import generate
kind, path, precision = sys.argv[1:]
detector = (Critic if kind == "critic" else Tagger).load(path, device="cpu", precision=precision)
list(detector.predict_examples(list(generate("test", 32))))
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])"""
Predictions = Mapping[str, Prediction]


def main() -> None:
    """Measures each detector."""
    parser = BenchmarkParser(__doc__, timed=128, judged=1000)
    parser.add_argument("--critic", help="a run or hf/ folder")
    parser.add_argument("--tagger", help="a run or hf/ folder")
    options = parser.parse()
    require("onnx", "onnxscript", "onnxruntime", hint="pip install -e '.[onnx]'")
    torch.set_num_threads(1)
    if not options.critic and not options.tagger:
        options.critic = load_demo_critic()
    for kind in METRICS:
        if checkpoint := getattr(options, kind):
            with tempfile.TemporaryDirectory() as folder:
                measure(kind, checkpoint, Path(folder), options)


def measure(kind: str, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Times all ways to run a detector in turns, compares their predictions, and writes the section."""
    load: Any = Critic.load if kind == "critic" else Tagger.load
    models = {f"torch, {name}": (checkpoint, name) for name in PRECISIONS}
    models |= {f"onnxruntime, {FORMATS[n]}": (export(checkpoint, folder / n, n), ONNX) for n in FORMATS}
    detectors = {name: load(path, device="cpu", precision=precision) for name, (path, precision) in models.items()}
    first = next(iter(detectors))
    timed = (make_pairs if kind == "critic" else make_tagged)(detectors[first].encoder.tokenizer, options.timed)
    judged = list(generate("test", options.judged))
    sides: dict[str, Callable[[], object]] = {}
    if kind == "critic":
        sides["transformers' pipeline, fp32"] = partial(load_pipeline(checkpoint), timed)
    sides |= {name: partial(predict, detector, timed) for name, detector in detectors.items()}
    taken = alternate(sides, options.rounds, warm_up=True)
    predicted = {name: predict(detector, judged) for name, detector in detectors.items()}
    fp32, rows = predicted[first], []
    for name, *figures in rates(taken, len(timed)):
        if found := predicted.get(name):
            figures += ["" if name == first else format_change(kind, m, judged, found, fp32) for m in METRICS[kind]]
            scores = [np.array([side[e.id].score for e in judged], np.float64) for side in (found, fp32)]
            moved = np.abs(scores[0] - scores[1])
            figures += [f"{moved.mean():.4f}, {moved.max():.3f}", f"{peak_mib(kind, *models[name]):.0f}"]
        rows.append([name, *figures])
    changes = [f"change in {metric}" for metric in METRICS[kind]]
    header = ["side", "responses a CPU-second", f"against {next(iter(taken))}", *changes]
    header += ["change of P(hallucinated): mean, most", "peak MiB of a process that scores 32"]
    about = (
        f"Timed: {len(timed)} responses; {PAIRS if kind == 'critic' else TAGGED}. Judged: {len(judged)} rows of the "
        "embedded test split; changes from fp32 in points, with 95% intervals."
    )
    full = [[*row, *[""] * (len(header) - len(row))] for row in rows]
    write_results(f"Scoring: {kind}", about, table(header, full), quick=options.quick)


def export(checkpoint: str, folder: Path, format_name: str) -> str:
    """Exports as a user does, in another process."""
    arguments = [f"checkpoint={checkpoint}", f"output_dir={folder}", f"format={format_name}"]
    run_process([sys.executable, "export.py", *arguments])
    return str(folder)


def load_pipeline(checkpoint: str) -> Callable[[Sequence[Example]], list[float]]:
    """Builds transformers' pipeline as its documentation shows it; it scores pairs in batches of 32."""
    folder = str(find_folder(checkpoint))
    classify: Any = pipeline("text-classification", folder, dtype=torch.float32, device="cpu", batch_size=32)

    def score(examples: Sequence[Example]) -> list[float]:
        inputs = [{"text": example.knowledge, "text_pair": example.response} for example in examples]
        scores = classify(inputs, top_k=None, truncation="only_first", max_length=LONGEST)
        return [next(one["score"] for one in labels if one["label"] == HALLUCINATED) for labels in scores]

    return score


def predict(detector: Any, examples: Sequence[Example]) -> Predictions:
    """Predicts examples; returns the predictions by id."""
    return {prediction.id: prediction for prediction in detector.predict_examples(examples)}


def format_change(kind: str, metric: str, examples: Sequence[Example], ours: Predictions, fp32: Predictions) -> str:
    """Formats the paired difference of a metric from fp32, in points with its interval."""
    if kind == "critic":
        found = compare_outcomes(join_outcomes(examples, ours), join_outcomes(examples, fp32))[metric]
    else:
        found = compare_spans(examples, ours, fp32)[metric]
    return f"{100 * found.value:+.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def peak_mib(kind: str, path: str, precision: str) -> float:
    """Measures the peak memory of a process that loads a detector and scores 32 responses."""
    command = [sys.executable, "-c", PEAK, kind, path, precision]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1]) / 1024  # unlike ru_maxrss, without the peak of the parent


if __name__ == "__main__":
    main()
