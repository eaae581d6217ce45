"""Compares known detectors with their originals: largest difference of P(supported), and CPU-seconds, in turns.

Both load the same random weights in the original layout, and read the same rows with one thread: embedded everyday
answers, and as many again with several documents joined.

Needs: an environment with the originals, and a folder with their checkouts (peers/README.md); skipped without them.

FAITHKIT_ORIGINALS_PYTHON=~/originals/bin/python FAITHKIT_ORIGINALS_CODE=~/checkouts python -m speed.known_speed
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faithkit.published.known_detectors import KnownLanguageModel, PairClassifier, known_detectors
from faithkit.records import Example, Turn, number_passages
from faithkit_workflows.detectors.loading import load_detector
from speed.known_folders import write_known
from speed.measure import ROOT, BenchmarkParser, Ratio
from speed.worker import start_worker

PYTHON, CODE = "FAITHKIT_ORIGINALS_PYTHON", "FAITHKIT_ORIGINALS_CODE"
SCRIPT = Path(__file__).parent / "peers" / "known_worker.py"
ROWS = ROOT / "data_modules" / "everyday_answers" / "fitting.jsonl"


def main() -> None:
    """Compares all, or those named."""
    parser = BenchmarkParser(__doc__, rounds=3, rows=50)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("names", nargs="*")
    options = parser.parse()
    if not {PYTHON, CODE} <= os.environ.keys():
        print(f"skipped: {PYTHON} or {CODE} is not set; hint: speed/peers/README.md", file=sys.stderr)
        return
    torch.set_num_threads(1)
    names = options.names or [
        name for name, one in known_detectors().items() if not isinstance(one, KnownLanguageModel)
    ]
    short, long = make_rows(options.rows, join=False), make_rows(options.rows, join=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows = short if isinstance(known_detectors()[name], PairClassifier) else long
            print(compare(name, Path(folder), rows, options.rounds, options.hidden_size), flush=True)


def make_rows(count: int, *, join: bool) -> list[dict[str, Any]]:
    """Takes rows of different documents.

    Args:
        join: Each second row has the documents of its neighbours before and after it. Where the original cuts a
            document and ours reads it in windows, rows stay short.
    """
    stored = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    chosen = stored[:: len(stored) // count][:count]
    rows = []
    for number, row in enumerate(chosen):
        near = range(number - 2, number + 3 + number // 8) if join and number % 2 else [number]
        rows.append(
            {
                "passages": [chosen[place % count]["knowledge"] for place in near],
                "question": row["question"] if number % 3 else None,
                "response": row["response"],
            }
        )
    return rows


def compare(name: str, root: Path, rows: list[dict[str, Any]], rounds: int, hidden_size: int) -> str:
    """Compares one detector, and describes the result in a line."""
    texts = [text for row in rows for text in (*row["passages"], row["question"] or "", row["response"])]
    known = known_detectors()[name]
    is_tagger, language = known.marks_spans, getattr(known, "prompts", "")
    examples = []
    for row in rows:  # only a tagger reads their passages and their question
        knowledge = number_passages(row["passages"]) if is_tagger else "\n".join(row["passages"])
        history = (Turn(speaker="user", text=row["question"]),) if is_tagger and row["question"] else ()
        text = {"knowledge": knowledge, "history": history, "response": row["response"]}
        examples.append(Example(id="1", source="speed", split="all", group="1", **text))
    folder = write_known(root, name, texts, hidden_size=hidden_size)
    if language:  # its prompts are files of the original package
        command = [os.environ[PYTHON], "-c", "import lettucedetect as one; print(one.__path__[0])"]
        package = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
        shutil.copytree(Path(package) / "prompts", folder / "prompts", dirs_exist_ok=True)
    detector = load_detector(f"{name}:{folder}", precision="32-true", batch_tokens=None)
    path = root / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    ours, theirs = [], []
    command = [os.environ[PYTHON], str(SCRIPT), "--name", name, "--root", str(root), "--rows", str(path)]
    command += ["--model", known.hub, "--language", language]
    with start_worker([*command, "--code", os.environ[CODE]], HF_HUB_OFFLINE="1") as ask:
        ask(0, 2)
        list(detector.predict_examples(examples[:2]))
        for _ in range(rounds):
            answer = ask(0, len(rows))
            theirs.append(answer["seconds"])
            begin = time.process_time()
            found = [one.score or 0.0 for one in detector.predict_examples(examples)]
            ours.append(time.process_time() - begin)
    difference = np.abs(1 - np.array(found) - np.array(answer["supported"]))
    spread = f"scores {min(found):.3f} to {max(found):.3f}"
    same = int((difference <= 1e-5).sum())
    return (
        f"{name}: largest difference {difference.max():.1e}, {same} of {len(rows)} within 1e-5, {spread}; "
        f"{Ratio.of(theirs, ours)} as fast"
    )


if __name__ == "__main__":
    main()
