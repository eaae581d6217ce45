"""A protocol's command line is checked before anything is read: what it lacks, and what it has for nothing."""

import pytest

from faithkit.settings.check import find_missing
from faithkit_workflows.settings.evaluation import EvaluateSettings
from tests.running import compose

LOCAL = ["engine=transformers", "engine.model=smollm2-135m"]


def problems(*overrides: str) -> str:
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(compose("evaluate", *overrides), resolve=True)
    assert isinstance(config, dict)
    config = {key: value for key, value in config.items() if key != "hydra"}
    try:
        found = list(find_missing(EvaluateSettings.model_validate(config)))
    except ValueError as error:
        return str(error)
    return " | ".join(str(one) for one in found)


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
        (
            ["benchmark=hallucination_rates", "benchmark.systems={a: {name: vllm, model: smollm2-135m}}"],
            "nothing judges",
        ),
        (["benchmark=halludial_comparative", *LOCAL, "html=page.html"], "the page is for answers"),
    ],
)
def test_a_command_that_cannot_run_says_why(overrides: list[str], said: str) -> None:
    assert said in problems(*overrides)
