"""Loads the critic and the tagger that benchmarks are given, and runs them in all precisions."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from critic import Critic, Tagger
from critic.runtime.onnx_model import ONNX
from faithkit.files.cache import cache_dir
from faithkit.records import Example, Prediction
from speed.measure import BenchmarkParser, require, run_process

CLASSES: Mapping[str, Any] = {"critic": Critic, "tagger": Tagger}
PRECISIONS = ("32-true", "bf16", "int8")
FORMATS = {"onnx": "fp32", "onnx_int8": "int8"}  # formats of export.py
Predictions = Mapping[str, Prediction]


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


def measure_each(measure: Callable[..., None], options: argparse.Namespace) -> None:
    """Calls `measure` with each detector's kind and checkpoint, an empty folder and the options."""
    for kind, checkpoint in options.checkpoints.items():
        with tempfile.TemporaryDirectory() as folder:
            measure(kind, checkpoint, Path(folder), options)


def export_formats(checkpoint: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Exports a detector as a user does; returns path and precision of each side, the first in fp32."""
    require("onnx", "onnxscript", "onnxruntime", hint="pip install -e '.[onnx]'")
    sides = {f"torch, {name}": (checkpoint, name) for name in PRECISIONS}
    for name, precision in FORMATS.items():
        path = str(folder / name)
        run_process([sys.executable, "export.py", f"checkpoint={checkpoint}", f"output_dir={path}", f"format={name}"])
        sides[f"onnxruntime, {precision}"] = (path, ONNX)
    return sides


def load_sides(kind: str, sides: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Loads the detector of each side."""
    load = CLASSES[kind].load
    return {name: load(path, device="cpu", precision=precision) for name, (path, precision) in sides.items()}


def predict(detector: Any, examples: Sequence[Example]) -> Predictions:
    """Predicts examples; returns the predictions by id."""
    return {prediction.id: prediction for prediction in detector.predict_examples(examples)}
