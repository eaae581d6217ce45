"""Build a benchmark of hallucinations, as the papers built theirs.

faithkit construct pipeline=spontaneous engine=transformers engine.model=smollm2-135m limit=20
faithkit construct pipeline.path=DIR engine=openai engine.base_url=URL models=[a,b] engine.model=JUDGE
faithkit construct pipeline=spontaneous ... dry_run=true      three prompts of each step, and what it would cost
faithkit construct pipeline=describe pipeline.dataset=ragtruth pipeline.path=DIR   any dataset: tables, plots, a page
faithkit construct pipeline=estimate pipeline.predictions=FILE pipeline.labels=FILE    a system's rate, few labels
faithkit construct pipeline=estimate pipeline.predictions=FOLDER pipeline.by=COLUMN    of scored shards; also engine=ray
faithkit construct resume=runs/...                            go on after any interruption; no reply is asked for twice
faithkit construct resume=runs/... retry_holes=true           ask again for what failed, and only for that
faithkit construct resume=runs/... pipeline.max_words=60      other settings: what depends on them is made again
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder

# By name: a function that takes the run's folder and the configuration. With `dry_run` it gets a folder that is not
# there, asks nothing and writes nothing.
PIPELINES = {
    "spontaneous": "faithkit_workflows.pipelines.spontaneous:run_spontaneous",
    "induced": "faithkit_workflows.pipelines.induced:run_induced",
    "rag": "faithkit_workflows.pipelines.rag:run_rag",
    "describe": "faithkit_workflows.pipelines.describe:run_describe",
    "estimate": "faithkit_workflows.pipelines.estimate:run_estimate",
    "annotate": "faithkit_workflows.pipelines.annotate:run_annotate",
    "agreement": "faithkit_workflows.pipelines.agreement:run_agreement",
    "self_dialogue": "faithkit_workflows.pipelines.self_dialogue:run_self_dialogue",
    "faithdial_edit": "faithkit_workflows.pipelines.faithdial_edit:run_faithdial_edit",
}
# By name: refuses what a resumed run may not change, before it is written.
CHECKS = {"annotate": "faithkit_workflows.pipelines.annotate:check_resumed"}
# A resumed run may change all that its steps depend on: what they made with other settings is made again.
MAY_CHANGE = (
    *("pipeline.*", "engine.*", "models", "models.*", "prompts", "labels", "labels.*", "limit", "seed"),
    *("retry_holes", "dry_run", "verbose"),
)
GROUPS = ("pipeline", "engine", "scale")


def main(cfg: Any) -> None:
    """Opens the run's folder and works in it; a dry run opens none."""
    from faithkit.files.open_run import open_run, resolve_config
    from faithkit.files.run_folder import RunFolder, log_to
    from faithkit.reports.write_reports import ReportOptions, print_summary
    from faithkit_workflows.settings.construction import ConstructSettings

    if cfg.get("dry_run"):
        from faithkit.settings.check import check_settings

        config = resolve_config(cfg)
        check_settings(config, ConstructSettings)
        construct(RunFolder(config["run_dir"] or "runs/dry_run"), config)
        return
    if cfg.get("resume"):
        check_pipeline(Path(cfg.resume), cfg.pipeline.name)
    kind = f"construct-{cfg.pipeline.name}"
    opened = open_run(cfg, kind, ConstructSettings, may_change=MAY_CHANGE, check_resumed=check_resumed)
    with opened as (run, config):
        log_to(run.log)
        construct(run, config)
        print_summary(run, ReportOptions.of(config))


def check_pipeline(folder: Path, name: str) -> None:
    """Refuses to go on with the run of another pipeline.

    Raises:
        UserError: The run is of another pipeline, or there is none.
    """
    from faithkit.errors import UserError
    from faithkit.files.saved_config import read_config

    own = (read_config(folder / "config.yaml").get("pipeline") or {}).get("name")
    if own != name:
        problem = f"this folder is of pipeline={own}, and pipeline={name} is asked for"
        raise UserError(problem, place=str(folder), hint=f"pipeline={own}, or run_dir=DIR in the place of resume")


def check_resumed(run: "RunFolder", config: Mapping[str, Any]) -> None:
    """Refuses settings that what the run holds does not allow."""
    if (name := config["pipeline"]["name"]) in CHECKS:
        check: Callable[[RunFolder, Mapping[str, Any]], None] = resolve_name(CHECKS[name])
        check(run, config)


def construct(run: "RunFolder", config: dict[str, Any]) -> None:
    """Hands over to the pipeline."""
    pipeline: Callable[[RunFolder, dict[str, Any]], None] = resolve_name(PIPELINES[config["pipeline"]["name"]])
    pipeline(run, config)


def with_resumed_pipeline(arguments: Sequence[str]) -> list[str]:
    """Adds the pipeline of a resumed run, whose keys may then be set; a run that cannot be read says so later."""
    from faithkit.errors import UserError
    from faithkit.files.saved_config import read_config

    resumed = [text.partition("=")[2] for text in arguments if text.startswith("resume=")]
    if not resumed or any(text.startswith("pipeline=") for text in arguments):
        return list(arguments)
    try:
        name = read_config(Path(resumed[-1]) / "config.yaml")["pipeline"]["name"]
    except (UserError, OSError, KeyError, TypeError):
        return list(arguments)
    return [f"pipeline={name}", *arguments] if name in PIPELINES else list(arguments)


def run() -> None:
    """The command line."""
    sys.argv[1:] = with_resumed_pipeline(sys.argv[1:])
    run_script(main, "construct", __doc__ or "", GROUPS, "faithkit_workflows.settings.construction:ConstructSettings")


if __name__ == "__main__":
    run()
