"""Score a benchmark, with a model or from a predictions file.

python evaluate.py benchmark=begin benchmark.path=FILE checkpoint=runs/...   predict, then score
python evaluate.py benchmark=begin benchmark.path=FILE predictions=FILE      score only: no model is loaded
python evaluate.py benchmark=ragtruth benchmark.path=DIR checkpoint=runs/... html=answers.html   and a page to read
python evaluate.py benchmark=faithdial predictions=FILE benchmark.critic=runs/... against=FILE   generated responses
"""

from typing import Any

from faithkit.cli import run_script

GROUPS = ("benchmark", "decoding", "scale")


def main(cfg: Any) -> None:
    """Generated responses, the transfer table of critics, or a detector's benchmark."""
    from faithkit.files.run_folder import log_to, open_run
    from workflows.detection_benchmark import run_benchmark
    from workflows.transfer import run_transfer

    run, config = open_run(cfg, f"evaluate-{cfg.benchmark.name}")
    log_to(run.log)
    if config["benchmark"].get("task") == "responses":
        score_responses(run, config)
    elif config["benchmark"]["name"] == "transfer":
        run_transfer(run, config)
    else:
        run_benchmark(run, config)


def score_responses(run: Any, config: dict[str, Any]) -> None:
    """Reads each dataset's examples, gets a response to each, then loads the models of the metrics and measures."""
    from data_modules.build import datasets_of, read_benchmark
    from faithkit.errors import UserError
    from faithkit.evaluation.responses.paired_responses import PairedResponses
    from faithkit.evaluation.responses.report import report_responses
    from faithkit.files.jsonl import read_predictions
    from faithkit.files.run_folder import environment
    from workflows.metric_models import load_metric_models
    from workflows.response_benchmark import benchmark_answerer

    if config["html"]:
        hint = "leave html out; a response stands beside its values in the run's scores/"
        raise UserError("the page is for answers with marked spans, as of benchmark=ragtruth", hint=hint)
    answer = benchmark_answerer(run, config)
    sets, read = {}, {}
    for name, block in datasets_of(config["benchmark"]).items():
        files = {key: read_predictions(block[key]) if block[key] else None for key in ("predictions", "against")}
        benchmark = read_benchmark(block, labelled=False)
        given = files["predictions"] or answer(benchmark)
        sets[name] = PairedResponses.of(benchmark.examples, given, files["against"], incomplete=block["incomplete"])
        read[name] = benchmark.summary
    meta = {"config": config, "data": read, "environment": environment()}
    options = {key: config[key] for key in ("num_resamples", "num_examples")}
    report_responses(
        run, sets, load_metric_models(config), meta=meta, baselines=config["benchmark"]["baselines"], **options
    )


def run() -> None:
    """The command line."""
    run_script(main, "evaluate", __doc__ or "", GROUPS)


if __name__ == "__main__":
    run()
