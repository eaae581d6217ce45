"""Decides whether optimised paths are used: the user's switch, and the private operators of the installed torch."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from faithkit.errors import shorten

SWITCH = "FAITHKIT_FAST"  # the environment variable, which `fast=false` sets for a command and its processes

log = logging.getLogger("faithkit")


def is_enabled() -> bool:
    """Whether optimised paths are used. With FAITHKIT_FAST=0 or `fast=false` models run as in transformers."""
    return os.environ.get(SWITCH, "1").lower() not in ("0", "false")


def _probe_product(multiply: Any) -> bool:
    rows = torch.arange(64.0).view(8, 8)
    return torch.allclose(multiply(rows, rows, None, "none", [], "none"), rows @ rows.t())


def _probe_norm(backward: Any) -> bool:
    rows, weight = torch.arange(8.0).view(2, 4), torch.ones(4)
    scale = torch.ones(2, 1)
    found: Tensor = backward(rows, rows, [4], 0 * scale, scale, weight, None, [True, True, False])[0]
    expected = rows - rows.mean(1, keepdim=True) - rows * (rows * rows).mean(1, keepdim=True)
    return torch.allclose(found, expected)


def _probe_flash(attend: Any) -> bool:
    state, bounds = torch.ones(4, 1, 8, dtype=torch.bfloat16, device="cuda"), torch.tensor([0, 4], dtype=torch.int32)
    options = {"scale": None, "window_size_left": -1, "window_size_right": -1}
    found = attend(state, state, state, bounds.cuda(), bounds.cuda(), 4, 4, 0.0, False, False, **options)[0]
    return torch.equal(found, state)


def _probe_int8(product: Any) -> bool:
    prepack = torch.ops.onednn.qlinear_prepack
    steps, weights = torch.full((2, 4), 3, dtype=torch.uint8), torch.full((3, 4), 2, dtype=torch.int8)
    packed = prepack(weights, None), torch.ones(3), torch.zeros(3, dtype=torch.long), None
    found: Tensor = product(steps, 1.0, 1, *packed, 1.0, 0, torch.float32, "none", [], "")
    return torch.equal(found, torch.full((2, 3), 16.0))


def _probe_answer(is_supported: Callable[[], object]) -> bool:
    return isinstance(is_supported(), bool)


# Names below `torch`, what runs without each, and a call of it as here; it returns whether the result is as expected.
OPERATORS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "ops.mkldnn._linear_pointwise": ("linear layers and packed attention on a CPU", _probe_product),
    "ops.mkldnn._is_mkldnn_bf16_supported": ("bf16 on a CPU", _probe_answer),
    "cpu._is_amx_tile_supported": ("attention on a CPU with AMX", _probe_answer),
    "cpu._is_avx512_bf16_supported": ("bf16 on a CPU without AMX", _probe_answer),
    "ops.aten.native_layer_norm_backward": ("norms of T5 in training", _probe_norm),
    "ops.aten._flash_attention_forward": ("packed attention on a GPU", _probe_flash),
    "ops.onednn.qlinear_pointwise": ("int8", _probe_int8),  # and qlinear_prepack
}


@cache
def has_operator(name: str) -> bool:
    """Whether this torch has a private operator of `OPERATORS` that computes what is expected; logs once if not."""
    what, probe = OPERATORS[name]
    try:
        if probe(attrgetter(name)(torch)):
            return True
        problem = "gives another result"
    except Exception as error:  # it is missing, or takes other arguments: torch has no common class for that
        problem = f"cannot be used: {shorten(str(error))}"
    text = "torch.%s of torch %s %s; computed as in transformers: %s"
    log.warning(text, name, torch.__version__, problem, what)
    return False


def answers_yes(name: str) -> bool:
    """Calls an operator that answers whether the CPU supports something; False where torch lacks it."""
    return has_operator(name) and bool(attrgetter(name)(torch)())
