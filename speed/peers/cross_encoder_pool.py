"""A worker that scores pairs with sentence-transformers' CrossEncoder over its pool of processes.

PEER_PYTHON cross_encoder_pool.py --model FOLDER --processes 2

A row is a JSON line {"knowledge": ..., "response": ...}. `FILE` on a line of the input scores its rows and answers
{"seconds", "scores"}: the CPU-seconds of this process and of the pool's, starting the pool included, and each row's
probability of the class "hallucinated".
"""

import argparse
import json
import resource
from pathlib import Path
from typing import Any

from lettuce_worker import cpu_seconds, serve
from sentence_transformers import CrossEncoder


def main() -> None:
    """Loads, then waits for work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--max-length", type=int, default=512)
    options = parser.parse_args()
    model = CrossEncoder(options.model, device="cpu", max_length=options.max_length)
    wrong = model.config.label2id["hallucinated"]

    def run(path: str) -> dict[str, Any]:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        pairs = [(row["knowledge"], row["response"]) for row in rows]
        begin = cpu_seconds() + children()
        pool = model.start_multi_process_pool(["cpu"] * options.processes)
        try:
            scores = model.predict(pairs, pool=pool, batch_size=32, apply_softmax=True, show_progress_bar=False)
        finally:
            model.stop_multi_process_pool(pool)
        return {"seconds": cpu_seconds() + children() - begin, "scores": scores[:, wrong].tolist()}

    serve(run)


def children() -> float:
    """Returns the CPU-seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
