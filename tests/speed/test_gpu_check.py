"""The check of all recipes on a GPU, with small shapes on a CPU, and its plan where there is no GPU."""

import pytest
import torch

from speed import gpu, gpu_check


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_check", *options])
    gpu_check.main()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_names_what_it_would_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch)
    printed = capsys.readouterr().out
    assert printed.startswith("not run: there is no CUDA device")
    assert "| judge, Llama-2-7B | 6,738.4 M | 32 of 32 | 1 x 1,280 |" in printed
    assert "| judge, Llama-2-13B with LoRA | 13,015.9 M | 40 of 40 |" in printed


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])  # tests/paper_scale trains them too
def test_recipes_train_with_small_shapes(
    every: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr(gpu, "RECIPES", dict(list(gpu.RECIPES.items())[::every]))
    run(monkeypatch, "--device", "cpu", "--quick")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert [row[0].removeprefix("| ") for row in rows] == list(gpu.RECIPES)
    assert all(float(row[5].replace(",", "")) > 0 for row in rows)
