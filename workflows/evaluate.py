"""Score a benchmark, with a model or from a predictions file.

python evaluate.py benchmark=begin benchmark.path=FILE checkpoint=runs/...   predict, then score
python evaluate.py benchmark=begin benchmark.path=FILE predictions=FILE      score only: no model is loaded
python evaluate.py benchmark=ragtruth benchmark.path=DIR checkpoint=runs/... html=answers.html   and a page to read
python evaluate.py benchmark=faithdial predictions=FILE benchmark.critic=runs/... against=FILE   generated responses
python evaluate.py benchmark=halueval benchmark.path=DIR engine=auto engine.model=NAME   a language model judges
python evaluate.py resume=runs/...                                           go on after any interruption
"""

from typing import Any

from faithkit.cli import run_script

# What a resumed run may change: how it is carried out and shown, never what it predicts.
MAY_CHANGE = (
    *("batch_tokens", "save_every_num_rows", "num_resamples", "num_examples", "html"),
    *("engine.batch_size", "engine.cache", "engine.api_key_variable", "engine.concurrency", "engine.max_retries"),
    *("engine.timeout_seconds", "engine.price", "engine.memory_fraction"),
)
GROUPS = ("benchmark", "engine", "decoding", "scale")


def main(cfg: Any) -> None:
    """Dispatches to generated responses, the transfer table of critics, or a detector's benchmark."""
    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to
    from workflows.settings.scripts import EvaluateSettings

    kind = f"evaluate-{cfg.benchmark.name}"
    with open_run(cfg, kind, EvaluateSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        # Each is imported where it is wanted: the others load much that it does not need.
        if config["benchmark"].get("task") == "responses":
            from workflows.response_benchmark import run_response_benchmark

            run_response_benchmark(run, config)
        elif config["benchmark"]["name"] == "transfer":
            from workflows.transfer import run_transfer

            run_transfer(run, config)
        else:
            from workflows.detection_benchmark import run_benchmark

            run_benchmark(run, config)


def run() -> None:
    """The command line."""
    run_script(main, "evaluate", __doc__ or "", GROUPS, "workflows.settings.scripts:EvaluateSettings")


if __name__ == "__main__":
    run()
