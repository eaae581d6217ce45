"""The benchmark of training and scoring on a GPU: its arithmetic, its plan without a GPU, and its run on a CPU."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, RobertaConfig, RobertaForSequenceClassification

from faithkit.weights.load import build_empty
from speed import gpu, gpu_speed


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_speed", *options])
    gpu_speed.main()


@pytest.mark.parametrize(
    ("kind", "config", "weights"),
    [
        (RobertaForSequenceClassification, RobertaConfig(**gpu.ROBERTA), 302e6),
        (LlamaForCausalLM, LlamaConfig(**gpu.LLAMA), 6476e6),  # 6.74e9 without two tables of 32,000 words
    ],
)
def test_weights_of_layers_count_and_those_of_words_do_not(kind: type, config: object, weights: float) -> None:
    assert gpu.count_weights(build_empty(kind, config)) == pytest.approx(weights, rel=0.005)


def test_flops_of_a_forward_pass_of_a_small_model() -> None:
    config = RobertaConfig(num_hidden_layers=1, hidden_size=2, architectures=["RobertaForSequenceClassification"])
    # A token of a row of 3 meets 48 weights, and 3 keys and 3 values of 2 numbers: 60 products of 2 FLOP.
    assert gpu.count_flops(48, config, np.array([3])) == 3 * 60 * 2
    config.architectures = ["LlamaForCausalLM"]  # half of the keys and values
    assert gpu.count_flops(48, config, np.array([3])) == 3 * 54 * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_names_what_it_would_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch)
    printed = capsys.readouterr().out
    assert printed.startswith("not run: there is no CUDA device")
    assert all(title in printed for title in gpu_speed.AIMS)


@pytest.mark.slow
def test_it_runs_on_a_cpu_with_small_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--device", "cpu", "--quick")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert [row[0].removeprefix("| ") for row in rows] == list(gpu_speed.AIMS)
    assert all(float(row[3].replace(",", "")) > 0 for row in rows)
