"""Compares the CPU-seconds of a row through `faithkit score engine=ray` with two workers and by the plain command.

Both sides score few rows and many: the difference is what rows cost, without what a launch costs once.

Needs: pip install -e '.[ray]'. Without --checkpoint the demo's critic is trained first (minutes, once).

python -m speed.ray_speed
python -m speed.ray_speed --checkpoint RUN --rows 2000 16000
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from speed.measure import Ratio, alternate, report, require, table
from speed.mixed import DESCRIPTION, demo_critic, mixed_pairs

NUM_SHARDS, NUM_WORKERS = 8, 2
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Times both sides in turns on the same rows, and compares what they wrote."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", help="a run or hf/ folder")
    parser.add_argument("--rows", type=int, nargs=2, default=(400, 2000), help="few and many")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    require("ray", hint="pip install -e '.[ray]'")

    import torch

    from critic.sequence.scorer import Critic
    from faithkit.files.home import cache_dir

    torch.set_num_threads(1)
    checkpoint = str(Path(options.checkpoint or demo_critic(cache_dir("speed"))).resolve())
    ray = start_ray()
    with TemporaryDirectory() as folder:
        tokenizer = Critic.load(checkpoint, device="cpu").encoder.tokenizer
        few, many = (Path(folder, name) for name in ("few", "many"))
        num_few, num_many = (
            write_shards(path, tokenizer, n) for path, n in zip((few, many), options.rows, strict=True)
        )
        for side in (plain, through_ray):
            side(few, checkpoint)  # imports, and caches of files, that the first call alone pays for
        once: list[float] = []

        def ray_side() -> float:
            once.append(through_ray(few, checkpoint))
            return through_ray(many, checkpoint) - once[-1]

        sides: dict[str, Any] = {
            "faithkit score": lambda: plain(many, checkpoint) - plain(few, checkpoint),
            f"engine=ray, {NUM_WORKERS} workers": ray_side,
        }
        taken = alternate(sides, options.rounds)
    ray.shutdown()
    base = taken["faithkit score"]
    num_rows = num_many - num_few
    rows = [[name, f"{num_rows / np.median(all_):.0f}", Ratio.of(base, all_)] for name, all_ in taken.items()]
    fixed = np.median(once) - num_few * np.median(list(taken.values())[1]) / num_rows
    lines = [
        f"{num_rows} rows more in {NUM_SHARDS} shards of JSON lines, {DESCRIPTION}. Ray {ray.__version__}. "
        "Counted are the workers while they score, the command and Ray's own processes; loading the model is not, on "
        "neither side.",
        table(["side", "rows a CPU-second", "against the plain command"], rows),
        f"A launch costs {fixed:.1f} CPU-seconds once, beside starting Ray and loading the model in each worker.",
    ]
    report("Scoring through Ray", "\n\n".join(lines))


def start_ray() -> Any:
    """Starts Ray on this machine, for two workers."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    import ray

    ray.init(
        address="local",
        log_to_driver=False,
        num_cpus=NUM_WORKERS,
        object_store_memory=100_000_000,
        include_dashboard=False,
    )
    return ray


def write_shards(folder: Path, tokenizer: Any, count: int) -> int:
    """Writes pairs of mixed lengths as shards; gives the number of rows."""
    folder.mkdir()
    pairs = mixed_pairs(tokenizer, count)
    for shard in range(NUM_SHARDS):
        rows = ({"knowledge": pair.knowledge, "response": pair.response} for pair in pairs[shard::NUM_SHARDS])
        (folder / f"part-{shard}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return len(pairs)


def plain(data: Path, checkpoint: str) -> float:
    """Scores each shard as a file; gives the CPU-seconds without those of loading the model."""
    from faithkit.files.open_run import open_run
    from faithkit_workflows.detectors import loading as detectors
    from faithkit_workflows.score import score
    from faithkit_workflows.settings.prediction import ScoreSettings

    loaded = detectors.load_checkpoint(settings(data, checkpoint))
    seconds = 0.0
    load, detectors.load_checkpoint = detectors.load_checkpoint, lambda config: loaded
    try:
        for path in sorted(data.iterdir()):
            with TemporaryDirectory() as folder:
                config = settings(path, checkpoint, f"run_dir={folder}/run", f"output={folder}/scored.parquet")
                with open_run(config, "score", ScoreSettings) as (run, plain_config):
                    begun = time.process_time()
                    score(run, plain_config)
                    seconds += time.process_time() - begun
    finally:
        detectors.load_checkpoint = load
    return seconds


def through_ray(data: Path, checkpoint: str, others: Sequence[str] = ()) -> float:
    """Scores the folder on the cluster of this process; gives the CPU-seconds of workers, driver and Ray."""
    from faithkit.files.open_run import resolve_config as as_plain
    from faithkit_workflows.ray.run import work_on_shards
    from faithkit_workflows.ray.scoring import Scoring

    with TemporaryDirectory() as folder:
        out = Path(folder, "out")
        config = settings(data, checkpoint, "engine=ray", f"out={out}", f"ray.workers={NUM_WORKERS}", *others)
        before = processes()
        work_on_shards(Scoring(as_plain(config)))
        after = processes()
        accounts = [json.loads(path.read_bytes()) for path in (out / "_faithkit" / "shards").iterdir()]
    own = sum(after[pid] - seconds for pid, seconds in before.items() if pid in after)
    return float(own + sum(account["cpu_seconds"] for account in accounts))


def settings(path: Path, checkpoint: str, *others: str) -> Any:
    """Composes the configuration of `faithkit score`."""
    from hydra import compose, initialize_config_dir

    from faithkit.settings.config_files import CONFIGS

    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        return compose("score", [f"path={path}", f"checkpoint={checkpoint}", "num_resamples=20", *others])


def processes() -> dict[int, float]:
    """Gives the CPU-seconds so far of this process and of all that it has started and that still run."""
    parents, seconds = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: seconds[pid] for pid in ours}


if __name__ == "__main__":
    main()
