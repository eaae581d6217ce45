"""The arithmetic of the GPU benchmark; its whole run on a CPU is slow."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from speed.gpu_train import LARGE, LONGEST, SHORTEST, count_flops, make_batches

ROOT = Path(__file__).resolve().parents[2]


def test_flops_of_a_step_of_a_small_model() -> None:
    # 48 weights a layer; 3 tokens with 3 keys and 3 values of 2 numbers: 12 products a token.
    # 2 FLOP a product, 3 times for forward and backward, 3 tokens: 3 * 2 * 60 * 3.
    assert count_flops({"num_hidden_layers": 1, "hidden_size": 2}, batch_size=1, length=3) == 1080


def test_roberta_large_has_its_302_million_weights_in_layers() -> None:
    assert count_flops(LARGE, 1, 1) / 6 == pytest.approx(302e6, rel=0.01)


def test_batches_hold_one_length_and_no_padding() -> None:
    batches = make_batches(500, max_tokens=1024, count=400)
    assert all(batch.size <= 1024 and batch.shape[1] % 8 == 0 for batch in batches)
    assert all(SHORTEST <= batch.shape[1] <= LONGEST for batch in batches)
    assert all((batch >= 5).all() for batch in batches), "1 would be padding"
    assert all(np.array_equal(a, b) for a, b in zip(batches, make_batches(500, 1024, 400), strict=True))


@pytest.mark.slow
def test_it_runs_on_a_cpu_without_hydra() -> None:
    code = (
        "import sys, runpy\n"
        "for name in ('hydra', 'omegaconf', 'datasets', 'pyarrow'):\n"
        "    sys.modules[name] = None\n"
        "sys.argv = ['gpu_train', '--device', 'cpu', '--quick']\n"
        "runpy.run_module('speed.gpu_train', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stdout
