"""Compares scoring by torch (fp32, bf16, our int8 layers) with scoring by ONNX graphs (fp32, int8) of the same weights.

Speed is taken on texts of mixed lengths, in turns; the change in F1 on the embedded corpus's test split, paired with
fp32 (bootstrap over dialogues; up to 500 of them a jackknife).

Needs: the `onnx` extra. Without a run the demo's critic is trained first (minutes, once).

python -m speed.onnx_speed                              with the demo's critic
python -m speed.onnx_speed --critic RUN --tagger RUN    of whatever data
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speed.detections import SHOWN, difference, levels, predict, scores, tell
from speed.measure import Ratio, alternate, report, require, table
from speed.mixed import DESCRIPTION as PAIRS
from speed.mixed import demo_critic, mixed_pairs
from speed.tagged import DESCRIPTION as TAGGED
from speed.tagged import mixed_tagged

TORCH = ("32-true", "bf16", "int8")
GRAPHS = ("onnx", "onnx_int8")  # formats of export.py
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Exports, then times all sides of a model in turns and compares what they predict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--critic", help="a run or hf/ folder")
    parser.add_argument("--tagger", help="a run or hf/ folder")
    parser.add_argument("--timed", type=int, default=120, help="texts of a round")
    parser.add_argument("--judged", type=int, default=1000, help="rows of the embedded test split")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="minilm", help="of the encoder, for the titles")
    options = parser.parse_args()
    require("onnx", "onnxscript", "onnxruntime", hint="pip install -e '.[onnx]'")

    import torch

    from faithkit.files.home import cache_dir

    torch.set_num_threads(1)
    if not options.critic and not options.tagger:
        options.critic = demo_critic(cache_dir("speed"))
    for kind in SHOWN:
        if checkpoint := getattr(options, kind):
            with tempfile.TemporaryDirectory() as folder:
                measure(kind, checkpoint, Path(folder), options)


def measure(kind: str, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Takes the figures of one model and writes its section."""
    from critic import Critic, Tagger
    from critic.runtime.onnx_model import GRAPH, ONNX, QUANTISED
    from data_modules.embedded.corpus import generate

    load: Any = Critic.load if kind == "critic" else Tagger.load
    paths = {name: export(checkpoint, folder / name, name) for name in GRAPHS}
    judged = list(generate("test", options.judged))
    detectors, memory = {}, {}
    for name, path, precision in (*((n, checkpoint, n) for n in TORCH), *((n, paths[n], ONNX) for n in GRAPHS)):
        detectors[name] = load(path, device="cpu", precision=precision)
        memory[name] = peak_of(kind, path, precision)
    reference = detectors[TORCH[0]]
    make = mixed_pairs if kind == "critic" else mixed_tagged
    timed = make(reference.encoder.tokenizer, options.timed)
    sides: dict[str, Callable[[], object]] = {n: partial(predict, d, timed) for n, d in detectors.items()}
    taken = alternate(sides, options.rounds, warm_up=True)
    predicted = {name: predict(detector, judged) for name, detector in detectors.items()}
    rows = []
    for name, seconds in taken.items():
        changes = difference(kind, judged, predicted[name], predicted[TORCH[0]])
        moved = np.abs(scores(predicted[name], judged) - scores(predicted[TORCH[0]], judged))
        rows.append(
            [
                f"torch, {name}" if name in TORCH else f"onnxruntime, {'int8' if name == 'onnx_int8' else 'fp32'}",
                f"{len(timed) / np.median(seconds):.1f}",
                Ratio.of(taken[TORCH[0]], seconds),
                *(tell(changes[metric]) if name != TORCH[0] else "" for metric in SHOWN[kind]),
                f"{moved.mean():.4f}, {moved.max():.3f}",
                f"{memory[name]:.0f}",
            ]
        )
    sizes = ", ".join(
        f"{file.stat().st_size / 1e6:.0f} MB {name}"
        for name, path, graph in (("fp32", paths["onnx"], GRAPH), ("int8", paths["onnx_int8"], QUANTISED))
        for file in [Path(path, graph)]
    )
    header = ["side", "responses a CPU-second", "against torch, fp32", *(f"change in {m}" for m in SHOWN[kind])]
    header += ["change of P(hallucinated): mean, most", "peak MiB of a process that scores 32"]
    values = levels(kind, judged, predicted[TORCH[0]])
    lines = [
        f"Timed: {len(timed)} responses; {PAIRS if kind == 'critic' else TAGGED}. Judged: {len(judged)} rows of the "
        f"embedded test split, in fp32 {values}. Differences from fp32 in points, with 95% intervals.",
        table(header, rows),
        f"The graphs: {sizes}.",
    ]
    report(f"ONNX: {kind}, {options.name}", "\n\n".join(lines))


def export(checkpoint: str, folder: Path, form: str) -> str:
    """Exports as a user does, in a process of its own."""
    arguments = [f"checkpoint={checkpoint}", f"output_dir={folder}", f"format={form}"]
    subprocess.run([sys.executable, "export.py", *arguments], cwd=ROOT, check=True, stdout=sys.stderr)
    return str(folder)


PEAK = """import resource, sys
from critic import Critic, Tagger
from data_modules.embedded.corpus import generate
kind, path, precision = sys.argv[1:]
detector = (Critic if kind == "critic" else Tagger).load(path, device="cpu", precision=precision)
list(detector.predict_examples(list(generate("test", 32))))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"""


def peak_of(kind: str, path: str, precision: str) -> float:
    """Returns the MiB that a process takes at most that loads a detector and scores a few rows."""
    command = [sys.executable, "-c", PEAK, kind, path, precision]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
