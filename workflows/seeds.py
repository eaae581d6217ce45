"""One training by several seeds in one run: a folder a seed, and the mean of their test metrics.

python train.py model=judge scale=paper trainer=fsdp seeds=[1,2,3]
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faithkit.evaluation.means import mean_of
from faithkit.evaluation.metric import Metric
from faithkit.evaluation.results import read_metrics, write_results
from faithkit.evaluation.tables import metrics_table, show
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import write_config
from faithkit.runs.chosen import chosen_of
from faithkit.runs.reading import read_run
from faithkit.runs.run import Run
from faithkit.training.stages import Stage, stages

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
    """Writes metrics.json with the means over all seeds, and prints them beside each seed's own.

    An interval here is Student's t over the seeds: how far another seed may lie, not what other test rows would change.
    """
    seeds: Sequence[int] = config["seeds"]
    found = [read_metrics(folder_of(run, seed).metrics) for seed in seeds]
    names = [name for name in found[0] if all(name in one for one in found)]
    means = {name: mean_of([one[name]["value"] for one in found], found[0][name].get("n")) for name in names}
    chosen = _mean_chosen([read_run(folder_of(run, seed).path) for seed in seeds])
    write_results(run.metrics, means, {"config": config, "seeds": list(seeds), **chosen})
    columns = {"mean": means}
    columns |= {
        f"seed {seed}": {name: Metric(value=one[name]["value"]) for name in names}
        for seed, one in zip(seeds, found, strict=True)
    }
    for prefix in dict.fromkeys(name.rpartition("/")[0] for name in names if name.count("/") == 2):
        shown = [name for name in SHOWN if f"{prefix}/{name}" in means]
        table = {column: {name: values[f"{prefix}/{name}"] for name in shown} for column, values in columns.items()}
        show(metrics_table(table, title=f"{prefix}: mean of {len(seeds)} seeds, 95% interval over seeds"))


def _mean_chosen(runs: Sequence[Run]) -> dict[str, Any]:
    """Gives the mean of the validations that chose the checkpoints, as a single training tells its own."""
    found = [chosen for run in runs if (chosen := chosen_of(run)) is not None]
    if len(found) < len(runs):
        return {}
    mode, metric = "min" if found[0].is_lower_better else "max", mean_of([one.metric.value for one in found])
    return {"chosen": {"monitor": found[0].monitor, "mode": mode, **metric.to_dict()}}
