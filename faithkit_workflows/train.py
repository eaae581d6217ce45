"""Train a model, then test its best checkpoint.

faithkit train model=critic                                         the embedded corpus, a CPU, minutes
faithkit train model=critic data=faithcritic data.path=DIR          official files as they are
faithkit train model=t5 objective=loss_truncation                   a generator
faithkit train resume=runs/...                                      continue after any interruption
faithkit train model=judge seeds=[1,2,3]                            the mean of three trainings, in one run
faithkit train -m model=critic seed=1,2,3 optimizer.lr=1e-4,2e-4    a sweep, its runs ranked; -m resume=FOLDER continues
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:  # imported when needed, because `--help` must be fast
    from faithkit.files.run_folder import RunFolder
    from faithkit.reports.report import Report
    from faithkit.statistics.metric import Metric
    from faithkit.training.stages import Stage
    from faithkit.training.task import Task

# What a resumed run may change: hardware, output and logging, never what it learns.
MAY_CHANGE = (
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.num_threads",
    "trainer.timeout_seconds",
    "data.num_workers",
    "data.eval_max_tokens",
    "callbacks.save_every_seconds",
    "callbacks.log_every_num_steps",
    "callbacks.progress_bar",
    "callbacks.num_examples",
    "callbacks.num_resamples",
    "callbacks.save_texts",
    "logger",
    "logger.*",
    "verbose",
    "checkpoints",
)
log = logging.getLogger("faithkit")
# The figures of several seeds that the first table shows.
SHOWN = (
    *("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "unparsed_rate", "perplexity"),
    *(f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")),
)
GROUPS = ("model", "objective", "control", "data", "scale", "trainer", "logger", "experiment")
SETTINGS = "faithkit_workflows.settings.training:TrainSettings"


def main(cfg: Any) -> None:
    """Opens the run's folder, trains each stage of each seed in it, and suggests the next commands."""
    from omegaconf import OmegaConf

    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to, process_rank
    from faithkit.settings.config_files import mark_embedded
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.training import TrainSettings

    mark_embedded(cfg)
    name = f"{cfg.model.name}-{cfg.data.name}"
    cfg = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "sweep"])  # a run is the same whoever started it
    with open_run(cfg, name, TrainSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        # Logged before the slow imports of the training.
        log.info("train: %s, into %s", describe_training(config), run.path)
        check_available(config["model"].get("weights"))
        from faithkit.reports.write_reports import ReportOptions, print_summary, suggest_after_training
        from faithkit.training.stages import check_parts, stages

        check_parts(config)
        if config.get("seeds"):
            train_seeds(run, config)
        else:
            for stage in stages(run, config):
                train(stage)
        if process_rank() == 0:
            print_summary(run, ReportOptions.of(config), suggest_after_training(run, config))


def describe_training(config: dict[str, Any]) -> str:
    """Names the model with its weights, and the dataset with where it is read."""
    from data_modules.reading.files import HUB
    from faithkit.settings.config_files import EMBEDDED

    data, model = config["data"], config["model"]
    parts = data["parts"].values() if isinstance(data["parts"], dict) else data["parts"]
    # A path that is null is that of files in the package; a dataset without the key is the embedded corpus.
    paths = [part.get("path", (part.get("of") or {}).get("path", EMBEDDED)) for part in parts]
    names = {EMBEDDED: "the embedded corpus", HUB: "the hub", None: "the package"}
    places = " and ".join(dict.fromkeys(names.get(path, path) for path in paths))
    return f"model={model['name']} from {model.get('weights')}, data={data['name']} from {places}"


def train(stage: "Stage") -> None:
    """Reads the data, trains, tests and reports one stage."""
    from data_modules.build import build_data
    from faithkit.fast import describe
    from faithkit.files.jsonl import write_jsonl
    from faithkit.files.run_folder import log_to, process_rank
    from faithkit.packages import environment
    from faithkit.provenance.used_model import seen_before
    from faithkit.reports.write_reports import collect_samples, write_run_results
    from faithkit.settings.types import KEEP_ALL
    from faithkit.targets import build
    from faithkit.training.checkpoints import drop_checkpoints, find_resume_point
    from faithkit.training.loggers import open_loggers
    from faithkit.training.stages import Finished
    from faithkit.training.task import FinishedTraining, finish_training
    from faithkit.training.trainer import FSDP, build_trainer, chosen_score, seed_and_threads
    from faithkit.weights.load import empty_models

    run, config = stage.run, stage.config
    model, callbacks, seed = config["model"], config["callbacks"], config["seed"]
    log_to(run.log)
    begin = find_resume_point(run)
    if begin is None and run.metrics.exists():
        log.info("%s is finished and has no checkpoint to resume from; its results are in the folder", run.path)
        return
    seed_and_threads(seed=seed, num_threads=config["trainer"]["num_threads"])
    task: Task[Any, Any, Any] = build(model["task"], model={key: one for key, one in model.items() if key != "task"})
    data = build_data(config["data"], task.encoder, num_epochs=model["num_epochs"], seed=seed)
    data.setup()
    first_step = begin.step if begin else 0
    with open_loggers(config["logger"], run, config, job=stage.job, first_step=first_step) as loggers:
        trainer = build_trainer(
            run,
            loggers.lightning,
            hardware=config["trainer"],
            callbacks=callbacks,
            accumulate_grad_batches=model["accumulate_grad_batches"],
            gradient_clip_val=model["gradient_clip_val"],
            validation_interval=data.validation_interval(model["validations_per_epoch"]),
            keeps_all=config["checkpoints"] == KEEP_ALL,
        )
        num_steps = -(-data.num_batches // model["accumulate_grad_batches"])
        # Under FSDP the first process alone holds a large model, until it is sharded.
        with empty_models(config["trainer"]["strategy"] == FSDP and process_rank() > 0):
            module = task.module(num_steps=num_steps, dataset=config["data"]["name"], seed=seed)
        weights = model.get("weights")
        places = "" if trainer.world_size == 1 else f"; {trainer.world_size} processes"
        size = describe(module, trainer.strategy.root_device, str(trainer.precision))
        log.info("model: %s from %s; %s%s", model["name"], weights, size, places)
        # Read now: the folder of the weights may be gone when training ends.
        inherited = seen_before(weights)
        trainer.fit(module, datamodule=data, ckpt_path=begin.path if begin else None, weights_only=True)
        origin = {"config": config, "data": data.summary()}
        sizes = {name: callbacks[name] for name in ("num_resamples", "num_examples", "save_texts")}
        about: dict[str, Any] = {"run": run, "origin": origin, "inherited": inherited, **sizes}
        finished = FinishedTraining(trainer=trainer, module=module, data=data, **about)
        reports, fit = finish_training(finished, task)
        if trainer.is_global_zero:
            write_jsonl(run.path / "rejects.jsonl", data.rejects)
            meta = {**origin, "chosen": chosen_score(trainer), "calibration": fit, "environment": environment()}
            metrics = write_run_results(run, reports, meta=meta)
            step, samples = trainer.global_step, collect_samples(reports)
            loggers.log_results(Finished(run=run, step=step, metrics=metrics, samples=samples, data=origin["data"]))
            drop_checkpoints(run, config["checkpoints"])
        trainer.strategy.barrier()  # the next stage of every process reads what the first one wrote


def train_seeds(run: "RunFolder", config: Mapping[str, Any]) -> None:
    """Trains the unfinished stages of each unfinished seed, and reports the means with each seed's values.

    Intervals are Student's t over the seeds: they measure the variation between seeds, not between test rows.
    """
    from faithkit.files.run_folder import process_rank, write_config
    from faithkit.provenance.predicted_rows import read_predicted_rows
    from faithkit.reports.report import Report
    from faithkit.reports.write_reports import ReportOptions, write_reports
    from faithkit.runs.listing import chosen_of
    from faithkit.runs.reading import read_run
    from faithkit.scores.measures import kind_of
    from faithkit.statistics.metric import Metric, average_runs, read_metrics, write_results
    from faithkit.training.stages import stages

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


def seeded_report(name: str, names: Sequence[str], columns: Mapping[str, Mapping[str, "Metric"]]) -> "Report":
    """Reports the means of a test set with each seed's values: the main metrics first, then all."""
    from rich.table import Table
    from rich.text import Text

    from faithkit.reports.report import Report, metrics_table
    from faithkit.statistics.metric import Metric

    def table(columns: Mapping[str, Mapping[str, Metric]], metrics: Sequence[str], title: str) -> Table:
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


def run() -> None:
    """Runs the command line."""
    run_script(main, "train", __doc__ or "", GROUPS, SETTINGS, sweep="faithkit_workflows.sweep:sweep")


if __name__ == "__main__":
    run()
