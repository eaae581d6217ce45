"""Benchmark and check of all recipes on a GPU: arithmetic, the plan without a GPU, and a run on a CPU."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, RobertaConfig, RobertaForSequenceClassification

from faithkit.weights.load import build_empty
from speed import gpu_check, gpu_speed


def run(module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    monkeypatch.setattr("sys.argv", [module.__name__, *options])
    module.main()
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "config", "weights"),
    [
        (RobertaForSequenceClassification, RobertaConfig(**gpu_speed.ROBERTA), 302e6),
        (LlamaForCausalLM, LlamaConfig(**gpu_speed.LLAMA), 6476e6),  # 6.74e9 without two tables of 32,000 words
    ],
)
def test_weights_of_layers_count_and_those_of_words_do_not(kind: type, config: object, weights: float) -> None:
    assert gpu_speed.count_weights(build_empty(kind, config)) == pytest.approx(weights, rel=0.005)


def test_flops_of_a_forward_pass_of_a_small_model() -> None:
    config = RobertaConfig(num_hidden_layers=1, hidden_size=2, architectures=["RobertaForSequenceClassification"])
    # A token of a row of 3 meets 48 weights, and 3 keys and 3 values of 2 numbers: 60 products of 2 FLOP.
    assert gpu_speed.count_flops(48, config, np.array([3])) == 3 * 60 * 2
    config.architectures = ["LlamaForCausalLM"]  # half of the keys and values
    assert gpu_speed.count_flops(48, config, np.array([3])) == 3 * 54 * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("module", "named"),
    [
        (gpu_speed, list(gpu_speed.AIMS)),
        (
            gpu_check,
            ["| judge, Llama-2-7B | 6,738.4 M | 32 of 32 | 1 x 1,280 |", "with LoRA | 13,015.9 M | 40 of 40 |"],
        ),
    ],
)
def test_without_a_gpu_it_names_what_it_would_measure(
    module: Any, named: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run(module, monkeypatch, capsys)
    assert printed.startswith("not run: there is no CUDA device") and all(part in printed for part in named)


@pytest.mark.parametrize(
    ("module", "every", "column"),
    [
        pytest.param(gpu_speed, 1, 3, marks=pytest.mark.slow),
        (gpu_check, 4, 5),  # tests/paper_scale trains these too
        pytest.param(gpu_check, 1, 5, marks=pytest.mark.slow),
    ],
)
def test_it_runs_on_a_cpu_with_small_models(
    module: Any, every: int, column: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr(gpu_speed, "RECIPES", dict(list(gpu_speed.RECIPES.items())[::every]))
    printed = run(module, monkeypatch, capsys, "--device", "cpu", "--quick")
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")][2:]
    names = gpu_speed.AIMS if module is gpu_speed else gpu_speed.RECIPES
    assert [row[0].removeprefix("| ") for row in rows] == list(names)
    assert all(float(row[column].replace(",", "")) > 0 for row in rows)
