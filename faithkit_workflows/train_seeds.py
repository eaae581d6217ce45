"""Trains with several seeds in one run: a folder for each seed, and the mean of their test metrics.

faithkit train model=judge scale=paper trainer=fsdp seeds=[1,2,3]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.files.run_folder import RunFolder, process_rank
from faithkit.files.saved_config import write_config
from faithkit.metrics.results import read_metrics, write_results
from faithkit.provenance.predicted_rows import read_predicted_rows
from faithkit.reports.report import Report
from faithkit.reports.score_table import metrics_table
from faithkit.reports.write_reports import ReportOptions, write_reports
from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import read_run
from faithkit.scores.measures import kind_of
from faithkit.statistics.metric import Metric, average_runs
from faithkit.training.stages import Stage, stages

SHOWN = (
    *("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "unparsed_rate", "perplexity"),
    *(f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")),
)
Columns = Mapping[str, Mapping[str, Metric]]


def train_seeds(run: RunFolder, config: Mapping[str, Any], train: Callable[[Stage], None]) -> None:
    """Trains the unfinished stages of each unfinished seed, and reports the means with each seed's values.

    Intervals are Student's t over the seeds: they measure the variation between seeds, not between test rows.

    Args:
        train: Trains one stage.
    """
    folders = {seed: run.stage(f"seed{seed}") for seed in config["seeds"]}
    for seed, folder in folders.items():
        of_seed = {**config, "seed": seed, "seeds": None}
        if not folder.metrics.exists():
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
            write_config(folder.config, of_seed)
            for stage in stages(folder, of_seed):
                train(stage)
    if process_rank() != 0:
        return
    found = [read_metrics(folder.metrics) for folder in folders.values()]
    names = [name for name in found[0] if all(name in one for one in found)]
    means = {
        name: average_runs([one[name]["value"] for one in found], found[0][name].get("n"), kind=kind_of(name))
        for name in names
    }
    meta: dict[str, Any] = {"config": config, "seeds": list(folders)}
    chosen = [one for folder in folders.values() if (one := chosen_of(read_run(folder.path))) is not None]
    if len(chosen) == len(folders):  # the validations that chose the checkpoints, in the form of a single training's
        monitor, mode = chosen[0].monitor, "min" if chosen[0].is_lower_better else "max"
        mean = average_runs([one.metric.value for one in chosen], kind=kind_of(monitor))
        meta["chosen"] = {"monitor": monitor, "mode": mode, **mean.to_dict()}
    write_results(run.metrics, means, meta)
    columns = {"mean": means}
    columns |= {
        f"seed {seed}": {name: Metric(value=one[name]["value"]) for name in names}
        for seed, one in zip(folders, found, strict=True)
    }
    by_set: dict[str, list[str]] = {}
    for name in names:
        split, dataset, *metric = name.split("/")
        by_set.setdefault(f"{split}/{dataset}", []).extend(metric if len(metric) == 1 else [])
    reports = {name: [seeded_report(name, metrics, columns)] for name, metrics in by_set.items()}
    answers = {}
    for seed, folder in folders.items():
        for path in sorted(folder.predictions.glob("*.jsonl")):
            rows = [(row.example, row.prediction) for row in read_predicted_rows(path).rows.values()]
            answers[f"{path.stem}, seed {seed}"] = [Report(metrics={}, answers=rows)]
    write_reports(run, reports | answers, ReportOptions.of(config))


def seeded_report(name: str, names: Sequence[str], columns: Columns) -> Report:
    """Reports the means of a test set with each seed's values: the main metrics first, then all."""

    def table(columns: Columns, metrics: Sequence[str], title: str) -> Table:
        systems = {column: {one: values[f"{name}/{one}"] for one in metrics} for column, values in columns.items()}
        found = metrics_table(systems, title=f"{title} of {num_seeds} seeds")
        found.caption = Text("percent but for loss and perplexity; the mean's 95% interval is over seeds")
        return found

    num_seeds, first = len(columns) - 1, [one for one in SHOWN if one in names]
    shown = columns
    if num_seeds > 4:  # more columns do not fit 80 characters: the lowest and the highest value in place of each seed's
        (mean, means), *seeds = columns.items()
        values = {name: [of_seed[name].value for _, of_seed in seeds] for name in means}
        lowest = {name: Metric(value=min(found)) for name, found in values.items()}
        shown = {mean: means, "lowest": lowest, "highest": {n: Metric(value=max(v)) for n, v in values.items()}}
    every = (
        (table(columns, names, f"{name}: every metric, mean"),) if len(names) > len(first) or shown != columns else ()
    )
    return Report(metrics={}, headline=(table(shown, first, f"{name}: mean"),), tables=every)
