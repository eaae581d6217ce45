"""Score a benchmark, with a model or from a predictions file.

faithkit evaluate benchmark=begin benchmark.path=FILE checkpoint=runs/...    predict, then score
faithkit evaluate benchmark=begin benchmark.path=FILE predictions=FILE       score only: no model is loaded
faithkit evaluate benchmark=ragtruth benchmark.path=DIR checkpoint=runs/... html=answers.html    and a page to read
faithkit evaluate benchmark=faithdial predictions=FILE benchmark.critic=runs/... against=FILE    generated responses
faithkit evaluate benchmark=domains benchmark.path=DIR checkpoint=runs/...   every domain, with cheap baselines
faithkit evaluate benchmark=halueval benchmark.path=DIR engine=auto engine.model=NAME   a language model judges
faithkit evaluate benchmark=halludial_comparative engine=auto engine.model=NAME   or meta_judging, hallucination_rates
faithkit evaluate benchmark=begin checkpoint=runs/... logger=[csv,wandb]     metrics and a sample to each logger
faithkit evaluate resume=runs/...                                            continue after any interruption
"""

import logging
import re
from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script
from faithkit.errors import UserError
from faithkit.settings.config_files import ANALYSIS

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder
    from faithkit.reports.write_reports import EvaluationResult

# What a resumed run may change: how it is carried out and shown, never what it predicts.
MAY_CHANGE = (
    *(
        "batch_tokens",
        "save_every_num_rows",
        "num_resamples",
        "num_examples",
        "html",
        "save_texts",
        "logger",
        "logger.*",
        "verbose",
    ),
    *("engine.batch_size", "engine.cache", "engine.api_key_variable", "engine.concurrency", "engine.max_retries"),
    *("engine.timeout_seconds", "engine.price", "engine.memory_fraction", "engine.num_gpus", "trainer", "trainer.*"),
)
log = logging.getLogger("faithkit")
# What runs the analysis, and others by their `task`; imported then, because each loads modules that others do not need.
RUNNERS = {
    None: "faithkit_workflows.benchmarks.detection:run_benchmark",
    "responses": "faithkit_workflows.benchmarks.responses:run_response_benchmark",
    "transfer": "faithkit_workflows.benchmarks.transfer:run_transfer",
    "domains": "faithkit_workflows.domains.benchmark:run_domains",
    "comparative": "faithkit_workflows.benchmarks.judge_benchmarks:run_comparative",
    "meta_judging": "faithkit_workflows.benchmarks.judge_benchmarks:run_meta_judging",
    "rates": "faithkit_papers.hallucination_rates:run_rates",
    ANALYSIS: "faithkit_papers.corpus.describe:run_analysis",
}
GROUPS = ("benchmark", "engine", "decoding", "scale", "trainer", "logger")
SETTINGS = "faithkit_workflows.settings.evaluation:EvaluateSettings"


def main(cfg: Any) -> None:
    """Opens the run's folder, evaluates, passes the results to the loggers, and suggests the next commands.

    Raises:
        UserError: None of the replies could be read as a verdict.
    """
    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.evaluation import EvaluateSettings

    kind = f"evaluate-{cfg.benchmark.name}"
    with open_run(cfg, kind, EvaluateSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        # Logged before the slow imports of the evaluation.
        log.info("evaluate: benchmark=%s, into %s", config["benchmark"]["name"], run.path)
        check_available(config["checkpoint"])
        from faithkit.reports.write_reports import ReportOptions, print_summary, suggest_after_evaluation

        # Without a task a detector judges the responses one by one.
        block = config["benchmark"]
        task = ANALYSIS if block["name"] == ANALYSIS else block.get("task")
        evaluate: Callable[[RunFolder, dict[str, Any]], EvaluationResult] = resolve_name(RUNNERS[task])
        if config.get("logger"):
            from faithkit.statistics.metric import read_meta
            from faithkit.training.loggers import open_loggers
            from faithkit.training.stages import Finished

            with open_loggers(config["logger"], run, config, job="evaluate") as loggers:
                scored = evaluate(run, config)
                results: dict[str, Any] = {"metrics": scored.metrics, "samples": scored.samples}
                sets = read_meta(run.metrics).get("test_sets", {})
                rows = {name: facts["rows"]["rows"] for name, facts in sets.items() if "rows" in facts}
                data = {"fingerprints": rows}
                loggers.log_results(Finished(run=run, step=0, data=data, **results))
        else:
            scored = evaluate(run, config)
        print_summary(run, ReportOptions.of(config), suggest_after_evaluation(run, config["checkpoint"]))
        of_sets = (name for name in scored.metrics if re.fullmatch("test/[^/]+/unparsed_rate", name))
        rates = [scored.metrics[name].value for name in of_sets]
        if rates and min(rates) == 1:
            hint = f"the replies are in {run.predictions}; use another model or judge.ask"
            raise UserError("none of the replies could be read as a verdict, so no figure is of the model", hint=hint)


def run() -> None:
    """Runs the command line."""
    run_script(main, "evaluate", __doc__ or "", GROUPS, SETTINGS)


if __name__ == "__main__":
    run()
