"""Build a benchmark of hallucinations, as the papers built theirs.

faithkit construct pipeline=spontaneous engine=transformers engine.model=smollm2-135m limit=20
faithkit construct pipeline.path=DIR engine=openai engine.base_url=URL models=[a,b] engine.model=JUDGE
faithkit construct pipeline=spontaneous ... dry_run=true      three prompts of each step, and what it would cost
faithkit construct pipeline=describe pipeline.dataset=ragtruth pipeline.path=DIR   any dataset: tables, plots, a page
faithkit construct pipeline=estimate pipeline.predictions=FILE pipeline.labels=FILE    a system's rate, few labels
faithkit construct pipeline=estimate pipeline.predictions=FOLDER pipeline.by=COLUMN    of scored shards
faithkit construct resume=runs/...                            continue after any interruption, without repeated requests
faithkit construct resume=runs/... retry_failed=true           ask again only for what failed
faithkit construct resume=runs/... pipeline.max_words=60      other settings: what depends on them is made again
"""

from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from faithkit.cli import run_script

ANNOTATE = "annotate"
# Functions of the run's folder and the configuration, by name. With `dry_run` the folder does not exist, and they
# ask and write nothing.
PIPELINES = {
    "spontaneous": "faithkit_workflows.pipelines.reply_benchmarks:run_spontaneous",
    "induced": "faithkit_workflows.pipelines.reply_benchmarks:run_induced",
    "rag": "faithkit_workflows.pipelines.reply_benchmarks:run_rag",
    "describe": "faithkit_papers.corpus.describe:run_describe",
    "estimate": "faithkit_workflows.pipelines.estimate:run_estimate",
    ANNOTATE: "faithkit_papers.annotation.annotate:run_annotate",
    "agreement": "faithkit_papers.annotation.agreement:run_agreement",
    "self_dialogue": "faithkit_workflows.pipelines.self_dialogue:run_self_dialogue",
    "faithdial_edit": "faithkit_workflows.pipelines.faithdial_edit:run_faithdial_edit",
}
# What a resumed run may change. Steps with other settings are made again; the tasks of annotators are not.
MAY_CHANGE = (
    *("pipeline.*", "engine.*", "models", "models.*", "prompts", "labels", "labels.*", "limit", "seed"),
    *("retry_failed", "dry_run", "verbose"),
)
ANNOTATE_MAY_CHANGE = (
    *("pipeline.name", "pipeline.export", "pipeline.on_bad_annotation", "pipeline.adjudicate", "pipeline.expert"),
    *("pipeline.decisions", "pipeline.min_annotators", "dry_run", "verbose"),
)
GROUPS = ("pipeline", "engine", "scale")
SETTINGS = "faithkit_workflows.settings.construction:ConstructSettings"


def main(cfg: Any) -> None:
    """Opens the run's folder and works in it; a dry run opens none.

    Raises:
        UserError: The resumed run is of another pipeline.
    """
    from faithkit.errors import UserError
    from faithkit.files.open_run import open_run, resolve_config
    from faithkit.files.run_folder import RunFolder, log_to, read_config
    from faithkit.reports.write_reports import ReportOptions, print_summary
    from faithkit_workflows.settings.construction import ConstructSettings

    if cfg.get("dry_run"):
        from faithkit.settings.check import check_settings

        config = resolve_config(cfg)
        check_settings(config, ConstructSettings)
        resolve_name(PIPELINES[config["pipeline"]["name"]])(RunFolder(config["run_dir"] or "runs/dry_run"), config)
        return
    if cfg.get("resume"):
        stored = (read_config(Path(cfg.resume) / "config.yaml").get("pipeline") or {}).get("name")
        if stored != cfg.pipeline.name:
            problem = f"this folder is of pipeline={stored}, not of pipeline={cfg.pipeline.name}"
            hint = f"pipeline={stored}, or run_dir=DIR instead of resume"
            raise UserError(problem, place=str(Path(cfg.resume)), hint=hint)
    kind = f"construct-{cfg.pipeline.name}"
    may_change = ANNOTATE_MAY_CHANGE if cfg.pipeline.name == ANNOTATE else MAY_CHANGE
    with open_run(cfg, kind, ConstructSettings, may_change=may_change) as (run, config):
        log_to(run.log)
        resolve_name(PIPELINES[config["pipeline"]["name"]])(run, config)
        print_summary(run, ReportOptions.of(config))


def with_resumed_pipeline(arguments: Sequence[str]) -> list[str]:
    """Adds the pipeline of a resumed run, so that its keys can be set; a broken run is reported later."""
    from faithkit.errors import UserError
    from faithkit.files.run_folder import read_config

    resumed = [text.partition("=")[2] for text in arguments if text.startswith("resume=")]
    if not resumed or any(text.startswith("pipeline=") for text in arguments):
        return list(arguments)
    try:
        name = read_config(Path(resumed[-1]) / "config.yaml")["pipeline"]["name"]
    except (UserError, OSError, KeyError, TypeError):
        return list(arguments)
    return [f"pipeline={name}", *arguments] if name in PIPELINES else list(arguments)


def run() -> None:
    """Runs the command line."""
    run_script(main, "construct", __doc__ or "", GROUPS, SETTINGS, prepare=with_resumed_pipeline)


if __name__ == "__main__":
    run()
