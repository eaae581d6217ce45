"""A protocol's command line is checked before anything is read: what it lacks, and what it has for nothing."""

import pytest

from faithkit.settings.check import find_missing
from faithkit_workflows.settings.evaluation import EvaluateSettings
from tests.running import plain_config

LOCAL = ["engine=transformers", "engine.model=smollm2-135m"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["benchmark=halludial_comparative"], "nothing judges"),
        (["benchmark=halludial_comparative", "checkpoint=runs/x"], "nothing judges"),
        (["benchmark=meta_judging", *LOCAL], "there are no judgements"),
        (["benchmark=meta_judging", *LOCAL, "benchmark.judgements=none.jsonl"], "benchmark.judgements: no such file"),
        (["benchmark=hallucination_rates", *LOCAL], "no language models are named"),
        (["benchmark=hallucination_rates", *LOCAL, "benchmark.systems={a: {name: transformers}}"], "without a model"),
        (["benchmark=hallucination_rates", *LOCAL, "benchmark.systems={a: {gold_predictions: x}}"], "no such file"),
        (["benchmark=hallucination_rates", "benchmark.systems={a: {name: vllm, model: m}}"], "nothing judges"),
        (["benchmark=halludial_comparative", *LOCAL, "html=page.html"], "the page is for answers"),
    ],
)
def test_a_command_that_cannot_run_says_why(overrides: list[str], said: str) -> None:
    config = plain_config("evaluate", *overrides)
    try:
        found = " | ".join(map(str, find_missing(EvaluateSettings.model_validate(config))))
    except ValueError as error:
        found = str(error)
    assert said in found
