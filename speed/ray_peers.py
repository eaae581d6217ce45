"""Compares scoring by `faithkit score engine=ray` with a plain Ray Data pipeline and sentence-transformers' pool.

All have two workers of one thread, the same weights and the same rows. Every side scores few rows and many: the
difference is what rows cost, without what a launch costs once.

    python -m speed.ray_peers [--checkpoint RUN] [--rows 200 1000]

Needs: pip install -e '.[ray]', and sentence-transformers in an environment of its own (peers/README.md); without it
that side is left out and the section says so. Without --checkpoint the demo's critic is trained first (minutes, once).
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speed.measure import Ratio, alternate, report, require, table
from speed.mixed import DESCRIPTION, demo_critic
from speed.peer import SENTENCE_TRANSFORMERS, peer
from speed.ray_speed import NUM_SHARDS, NUM_WORKERS, processes, start_ray, through_ray, write_shards
from speed.score_speed import huggingface, precision_name

PLAIN, POOL = "a pipeline in Ray Data, fp32", "CrossEncoder's pool, fp32"
PRECISIONS = {"fp32": "32-true"}


def main() -> None:
    """Times the sides in turns on the same rows, and compares their scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", help="a run or hf/ folder")
    parser.add_argument("--rows", type=int, nargs=2, default=(200, 1000), help="few and many")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    require("ray", hint="pip install -e '.[ray]'")

    import torch

    from critic.sequence.scorer import Critic
    from faithkit.files.home import cache_dir
    from faithkit.files.model_folder import find_folder

    torch.set_num_threads(1)
    checkpoint = str(Path(options.checkpoint or demo_critic(cache_dir("speed"))).resolve())
    ours, model = Critic.load(checkpoint, device="cpu"), str(find_folder(checkpoint))
    ray = start_ray()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        few, many = (Path(folder, name) for name in ("few", "many"))
        sizes = [
            write_shards(path, ours.encoder.tokenizer, n) for path, n in zip((few, many), options.rows, strict=True)
        ]
        scorers: dict[str, Callable[[Path], tuple[float, NDArray[np.float64]]]] = {
            PLAIN: partial(through_ray_data, model=model, max_length=ours.encoder.max_length)
        }
        notes = []
        if SENTENCE_TRANSFORMERS.variable in os.environ:
            limits = ["--processes", str(NUM_WORKERS), "--max-length", str(ours.encoder.max_length)]
            worker = stack.enter_context(
                peer(SENTENCE_TRANSFORMERS, "cross_encoder_pool.py", "--model", model, *limits)
            )
            scorers[POOL] = partial(through_pool, worker)
            notes.append(f"sentence-transformers in {SENTENCE_TRANSFORMERS.versions()}.")
        else:
            print(f"without sentence-transformers: {SENTENCE_TRANSFORMERS.missing}", file=sys.stderr)
            notes.append("sentence-transformers was not at hand.")
        rows = read_rows(few)
        # The others apply no temperature, so they are compared with a critic that has none.
        plain = Critic(ours.model, ours.encoder, type(ours.calibration)())
        expected = np.array(plain.probabilities([r["knowledge"] for r in rows], [r["response"] for r in rows]))
        for name, scorer in scorers.items():
            difference = np.abs(scorer(few)[1] - expected).max()
            notes.append(f"Largest difference of {name} from ours in fp32: {difference:.1e}.")
        sides: dict[str, Any] = {
            name: lambda scorer=scorer: scorer(many)[0] - scorer(few)[0] for name, scorer in scorers.items()
        }
        automatic = precision_name(Critic.load(checkpoint, device="cpu", precision="auto").model)
        for precision in dict.fromkeys(("fp32", automatic)):
            through = partial(
                through_ray, checkpoint=checkpoint, others=(f"precision={PRECISIONS.get(precision, precision)}",)
            )
            through(few)  # imports, and caches of files, that the first call alone pays for
            sides[f"engine=ray, {precision}"] = lambda through=through: through(many) - through(few)
        taken = alternate(sides, options.rounds)
    num_rows = sizes[1] - sizes[0]
    figures = [
        [name, f"{num_rows / np.median(all_):.1f}", Ratio.of(taken[PLAIN], all_)] for name, all_ in taken.items()
    ]
    lines = [
        f"{num_rows} rows more in {NUM_SHARDS} shards of JSON lines, {DESCRIPTION}. {NUM_WORKERS} workers of one "
        f"thread each, Ray {ray.__version__}. `precision=auto` here: {automatic}. {' '.join(notes)}",
        table(["side", "rows a CPU-second", "against a pipeline in Ray Data"], figures),
    ]
    ray.shutdown()
    report("Scoring through Ray, beside others", "\n\n".join(lines))


def read_rows(data: Path) -> list[dict[str, str]]:
    """Reads the rows of all shards, in their order."""
    return [json.loads(line) for path in sorted(data.iterdir()) for line in path.read_text().splitlines()]


class Scoring:
    """A Ray Data actor around transformers' pipeline, which counts its own CPU-seconds."""

    def __init__(self, model: str, max_length: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.pipeline = huggingface(model, max_length)
        self.seconds = time.process_time()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(batch["knowledge"], batch["response"], strict=True)
        scores = [one["score"] for one in self.pipeline([{"text": str(k), "text_pair": str(r)} for k, r in pairs])]
        before, self.seconds = self.seconds, time.process_time()
        spent = np.zeros(len(scores))
        spent[0] = self.seconds - before
        return {"knowledge": batch["knowledge"], "response": batch["response"], "p": np.array(scores), "spent": spent}


def through_ray_data(data: Path, *, model: str, max_length: int) -> tuple[float, NDArray[np.float64]]:
    """Scores a folder by Ray Data as its guide to batch inference shows it; gives CPU-seconds and scores."""
    import pandas
    import ray

    with TemporaryDirectory() as out:
        before = processes()
        rows = ray.data.read_json(str(data), lines=True).map_batches(
            Scoring,
            fn_constructor_args=(model, max_length),
            batch_size=256,
            compute=ray.data.ActorPoolStrategy(size=NUM_WORKERS),
            num_cpus=0.5,  # the other half reads and writes
        )
        rows.write_parquet(out)
        after = processes()
        found = pandas.read_parquet(out)
    own = sum(after[pid] - seconds for pid, seconds in before.items() if pid in after)
    known = dict(zip(zip(found["knowledge"], found["response"], strict=True), found["p"], strict=True))
    scores = np.array([known[row["knowledge"], row["response"]] for row in read_rows(data)])
    return float(own + found["spent"].sum()), scores


def through_pool(worker: Any, data: Path) -> tuple[float, NDArray[np.float64]]:
    """Scores a folder by CrossEncoder over its pool; gives CPU-seconds and scores."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text("".join(f"{json.dumps(row)}\n" for row in read_rows(data)), encoding="utf-8")
        found = worker.ask(path)
    return float(found["seconds"]), np.array(found["scores"])


if __name__ == "__main__":
    main()
