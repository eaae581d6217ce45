"""Score a benchmark, with a model or from a predictions file.

python evaluate.py benchmark=begin benchmark.path=FILE checkpoint=runs/...   predict, then score
python evaluate.py benchmark=begin benchmark.path=FILE predictions=FILE      score only: no model is loaded
python evaluate.py benchmark=transfer                                        FaithDial's Table 4, ours beside it
"""

from typing import Any

from common.cli import run_script

GROUPS = ("benchmark", "scale")


def main(cfg: Any) -> None:
    """Examples, predictions, metrics: the whole sequence."""
    from common.jsonl import read_predictions, write_jsonl
    from common.run_folder import environment, log_to, open_run
    from critic.scorer import load_for_evaluation
    from critic.transfer import run_transfer
    from data_modules.build import read_benchmark
    from evaluation.conclude import conclude

    run, config = open_run(cfg, f"evaluate-{cfg.benchmark.name}")
    log_to(run.log)
    if config["benchmark"]["name"] == "transfer":
        run_transfer(run, config)
        return
    predictions = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = read_benchmark(config["benchmark"])
    if predictions is None:
        critic = load_for_evaluation(
            config["checkpoint"], precision=config["precision"], batch_tokens=config["batch_tokens"]
        )
        predictions = {prediction.id: prediction for prediction in critic.predict(benchmark.examples, progress=True)}
        write_jsonl(run.predictions / f"{benchmark.name}.jsonl", (p.to_dict() for p in predictions.values()))
    conclude(
        run,
        {benchmark.name: (benchmark.examples, list(predictions.values()))},
        meta={"config": config, "data": benchmark.summary, "environment": environment()},
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
    )


if __name__ == "__main__":
    run_script(main, "evaluate", __doc__ or "", GROUPS)
