"""One training by several seeds in one run: a folder a seed, and the mean of their test metrics.

python train.py model=judge scale=paper trainer=fsdp seeds=[1,2,3]
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from scipy.special import stdtrit

from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.results import read_metrics, write_results
from faithkit.evaluation.tables import metrics_table, show
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import write_config
from faithkit.training.stages import Stage, stages

BOTH_SIDES = 0.975  # of Student's t, for a 95% interval
SHOWN = (
    *("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "unparsed_rate", "perplexity"),
    *(f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")),
)


def folder_of(run: RunFolder, seed: int) -> RunFolder:
    """Names the folder of one seed's training."""
    return run.stage(f"seed{seed}")


def seeded_stages(run: RunFolder, config: Mapping[str, Any]) -> Iterator[Stage]:
    """Gives the unfinished stages of each seed that is not finished; of a run without `seeds` its own stages."""
    if not config.get("seeds"):
        yield from stages(run, config)
        return
    for seed in config["seeds"]:
        own, plain = folder_of(run, seed), {**config, "seed": seed, "seeds": None}
        if not own.metrics.exists():
            own.checkpoints.mkdir(parents=True, exist_ok=True)
            write_config(own.config, plain)
            yield from stages(own, plain)


def report_mean(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Writes metrics.json with the means over all seeds, and prints them beside each seed's own; the path comes last.

    An interval here is Student's t over the seeds: how far another seed may lie, not what other test rows would change.
    """
    seeds: Sequence[int] = config["seeds"]
    found = [read_metrics(folder_of(run, seed).metrics) for seed in seeds]
    names = [name for name in found[0] if all(name in one for one in found)]
    means = {name: mean_of([one[name]["value"] for one in found], found[0][name].get("n")) for name in names}
    write_results(run.metrics, means, {"config": config, "seeds": list(seeds)})
    columns = {"mean": means}
    columns |= {
        f"seed {seed}": {name: Metric(value=one[name]["value"]) for name in names}
        for seed, one in zip(seeds, found, strict=True)
    }
    for prefix in dict.fromkeys(name.rpartition("/")[0] for name in names if name.count("/") == 2):
        shown = [name for name in SHOWN if f"{prefix}/{name}" in means]
        table = {column: {name: values[f"{prefix}/{name}"] for name in shown} for column, values in columns.items()}
        show(metrics_table(table, title=f"{prefix}: mean of {len(seeds)} seeds, 95% interval over seeds", digits=3))
    print(run.path)


def mean_of(values: Sequence[float], n: int | None = None) -> Metric:
    """Computes the mean with its interval; that of shares stays within 0 and 1."""
    middle, reach = mean(values), float(stdtrit(len(values) - 1, BOTH_SIDES)) * stdev(values) / len(values) ** 0.5
    low, high = middle - reach, middle + reach
    if all(0 <= value <= 1 for value in values):
        low, high = max(low, 0.0), min(high, 1.0)
    return Metric(value=middle, low=low, high=high, n=n)
