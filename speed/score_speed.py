"""Compares scoring in transformers' pipeline, with our `Critic` or `Tagger` in fp32, bf16 and int8, and in onnxruntime.

Needs: the `onnx` extra. Without --critic and --tagger the demo's critic is trained first (once, minutes).

python -m speed.score_speed
python -m speed.score_speed --critic RUN --tagger RUN        runs or hf/ folders
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import pipeline

from faithkit.files.model_folder import find_folder
from faithkit.records import HALLUCINATED
from speed.detectors import DetectorParser, export_formats, load_sides, measure_each, predict
from speed.measure import alternate, rates, table, write_results
from speed.samples import LONGEST, PAIRS, TAGGED, make_pairs, make_tagged


def main() -> None:
    """Measures each detector."""
    measure_each(measure, DetectorParser(__doc__, timed=128).parse())


def measure(kind: str, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Times all ways to run a detector in turns, and writes the section."""
    detectors = load_sides(kind, export_formats(checkpoint, folder))
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


if __name__ == "__main__":
    main()
