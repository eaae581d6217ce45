"""Measures what bf16, int8 and onnxruntime change: metrics, probabilities, and the peak memory of a process.

The rows are those of the embedded test split; the memory is that of a process that scores 32 of them.

Needs: the `onnx` extra. Without --critic and --tagger the demo's critic is trained first (once, minutes).

python -m speed.precision_check
python -m speed.precision_check --critic RUN --tagger RUN        runs or hf/ folders
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from data_modules.embedded.corpus import generate
from faithkit.metrics.classification import evaluate_labels
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.span_metrics import evaluate_spans, join_spans
from speed.detectors import DetectorParser, export_formats, load_sides, measure_each, predict
from speed.measure import ROOT, table, write_results

METRICS = {"critic": ("macro_f1", "auroc"), "tagger": ("char_f1", "response_f1")}
PEAK = """import sys
from data_modules.embedded.corpus import generate
from speed.detectors import load_sides, measure_each, predict
kind, *side = sys.argv[1:]
predict(load_sides(kind, {"": side})[""], list(generate("test", 32)))
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])"""


def main() -> None:
    """Measures each detector."""
    measure_each(measure, DetectorParser(__doc__, judged=1000).parse())


def measure(kind: str, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Compares the predictions of all ways to run a detector with those in fp32, and writes the section."""
    sides = export_formats(checkpoint, folder)
    examples = list(generate("test", options.judged))
    predicted = {name: predict(detector, examples) for name, detector in load_sides(kind, sides).items()}
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
