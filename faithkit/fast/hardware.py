"""Knows the hardware and the installed torch: whether fast paths are used, precisions, models on devices.

Where torch lacks a private operator that a fast path needs, or it computes something else, models run as in
transformers.
"""

import ctypes
import logging
import os
import sys
from functools import cache
from operator import attrgetter
from pathlib import Path
from platform import machine
from typing import Any

import torch

from faithkit.arguments import read_choice
from faithkit.errors import shorten
from faithkit.settings.types import PRECISIONS

SWITCH = "FAITHKIT_FAST"  # the environment variable, which `fast=false` sets for a command and its processes
X86 = ("x86_64", "AMD64")  # names of `platform.machine`
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h

log = logging.getLogger("faithkit")


def is_enabled() -> bool:
    """Whether optimised paths are used. With FAITHKIT_FAST=0 or `fast=false` models run as in transformers."""
    return os.environ.get(SWITCH, "1").lower() not in ("0", "false")


# Private operators, by their names below `torch`, and what needs each.
OPERATORS = {
    "ops.mkldnn._linear_pointwise": "linear layers and packed attention on a CPU",
    "ops.mkldnn._is_mkldnn_bf16_supported": "bf16 on a CPU",
    "cpu._is_amx_tile_supported": "attention on a CPU with AMX",
    "cpu._is_avx512_bf16_supported": "bf16 on a CPU without AMX",
    "ops.aten.native_layer_norm_backward": "norms of T5 in training",
    "ops.aten._flash_attention_forward": "packed attention on a GPU",
    "ops.onednn.qlinear_pointwise": "int8",  # and qlinear_prepack
}


def _computes_as_expected(name: str) -> bool:
    """Calls an operator as faithkit does, on a few numbers; raises what it raises."""
    operator = attrgetter(name)(torch)
    ones, rows = torch.ones(2, 1), torch.arange(8.0).view(2, 4)
    if name == "ops.mkldnn._linear_pointwise":
        return torch.equal(operator(rows, rows, None, "none", [], "none"), rows @ rows.t())
    if name == "ops.aten.native_layer_norm_backward":
        options = [4], 0 * ones, ones, torch.ones(4), None, [True, True, False]
        expected = rows - rows.mean(1, keepdim=True) - rows * (rows * rows).mean(1, keepdim=True)
        return torch.equal(operator(rows, rows, *options)[0], expected)
    if name == "ops.aten._flash_attention_forward":
        state, bounds = torch.ones(4, 1, 8, dtype=torch.bfloat16).cuda(), torch.tensor([0, 4], dtype=torch.int32).cuda()
        window = {"scale": None, "window_size_left": -1, "window_size_right": -1}
        found = operator(state, state, state, bounds, bounds, 4, 4, 0.0, False, False, **window)[0]
        return torch.equal(found, state)
    if name == "ops.onednn.qlinear_pointwise":
        packed = torch.ops.onednn.qlinear_prepack(torch.full((3, 4), 2, dtype=torch.int8), None)
        weights = packed, torch.ones(3), torch.zeros(3, dtype=torch.long), None
        steps = torch.full((2, 4), 3, dtype=torch.uint8)
        found = operator(steps, 1.0, 1, *weights, 1.0, 0, torch.float32, "none", [], "")
        return torch.equal(found, torch.full((2, 3), 16.0))
    return isinstance(operator(), bool)


@cache
def has_operator(name: str) -> bool:
    """Whether this torch has a private operator of `OPERATORS` that computes what is expected; logs once if not."""
    try:
        if _computes_as_expected(name):
            return True
        problem = "gives another result"
    except Exception as error:  # it is missing, or takes other arguments: torch has no common class for that
        problem = f"cannot be used: {shorten(str(error))}"
    text = "torch.%s of torch %s %s; computed as in transformers: %s"
    log.warning(text, name, torch.__version__, problem, OPERATORS[name])
    return False


def answers_yes(name: str) -> bool:
    """Calls an operator that answers whether the CPU supports something; False where torch lacks it."""
    return has_operator(name) and bool(attrgetter(name)(torch)())


def keep_freed_memory() -> None:
    """Lets glibc reuse freed memory: training allocates tensors of the same sizes in every step.

    By default it returns large blocks to the kernel, which clears every page again at the next step: half the time of
    an addition.
    """
    _set_allocator(mapped_from=2**30, trimmed_from=2**31 - 1)


def return_freed_memory() -> None:
    """Lets glibc return large freed blocks at once: scoring allocates tensors of many sizes, which fragment the heap.

    Fragmentation took a third of the memory of the default detector. Blocks of an ordinary pass are reused: the kernel
    clears every page that it gives, which takes a quarter of the time of scoring if blocks of 1 MiB are returned.
    """
    _set_allocator(mapped_from=2**22, trimmed_from=2**24)


def _set_allocator(*, mapped_from: int, trimmed_from: int) -> None:
    """Sets from which size a block is a mapping of its own, and how much free memory the heap keeps at its end."""
    if is_enabled() and sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, mapped_from)
        libc.mallopt(M_TRIM_THRESHOLD, trimmed_from)


@cache
def has_slow_mkl() -> bool:
    """Whether MKL computes fp32 with AVX2 although the CPU has AVX-512: it does on AMD's."""
    facts, has_avx512 = Path("/proc/cpuinfo"), torch.backends.cpu.get_cpu_capability() == "AVX512"
    return has_avx512 and facts.exists() and "AuthenticAMD" in facts.read_text()


def uses_onednn(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether inference in this precision should compute its products with oneDNN's operators."""
    if device.type != "cpu" or machine() not in X86 or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        is_faster = answers_yes("ops.mkldnn._is_mkldnn_bf16_supported")  # not with ONEDNN_MAX_CPU_ISA=AVX2
    else:
        is_faster = dtype == torch.float32 and has_slow_mkl()
    return is_faster and is_enabled() and has_operator("ops.mkldnn._linear_pointwise")


def best_precision(accelerator: str) -> str:
    """Chooses bf16-mixed where the hardware computes in it, else fp32: emulated bf16 is many times slower."""
    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()):
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    native = answers_yes("cpu._is_amx_tile_supported") or answers_yes("cpu._is_avx512_bf16_supported")
    is_used = answers_yes("ops.mkldnn._is_mkldnn_bf16_supported")  # not with ONEDNN_MAX_CPU_ISA=AVX2
    return "bf16-mixed" if native and is_used else "32-true"


def computes_in_bf16(device: str) -> bool:
    """Whether a torch device is faster in bf16 than in fp32."""
    return best_precision("gpu" if device.startswith("cuda") else "cpu") == "bf16-mixed"


def wants_bf16(precision: str, device: str) -> bool:
    """Whether a model runs in bf16: as requested, or for `auto` if the device is faster in it."""
    return precision == "bf16" or (precision == "auto" and computes_in_bf16(device))


def resolve_precision(precision: str, device: str) -> str:
    """Resolves `auto` to 32-true or bf16 by the device, and checks the precision."""
    read_choice("precision", precision, PRECISIONS)
    return "bf16" if wants_bf16(precision, device) else "32-true"


def describe(model: Any, device: Any, precision: str | None = None) -> str:
    """Describes a model's size, device and precision: `22.7 million parameters; cpu, 2 threads; 32-true`.

    Args:
        precision: None uses that of the weights.
    """
    device, parts = torch.device(device), []
    parameters = {id(one): one for one in model.parameters()} if hasattr(model, "parameters") else {}
    if total := sum(one.numel() for one in parameters.values()):
        trained = sum(one.numel() for one in parameters.values() if one.requires_grad)
        some = f" ({trained / 1e6:,.1f} trained)" if model.training and trained < total else ""
        parts.append(f"{total / 1e6:,.1f} million parameters{some}")
    if device.type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    else:
        threads = torch.get_num_threads()
        parts.append(f"{device.type}, {threads} thread{'' if threads == 1 else 's'}")
    kinds = sorted({str(one.dtype).removeprefix("torch.") for one in parameters.values()})
    if label := precision or " and ".join(kinds):
        parts.append(label)
        is_bf16 = label.startswith(("bf16", "bfloat16"))
        if is_bf16 and device.type in ("cpu", "cuda") and not computes_in_bf16(device.type):
            parts.append("emulated on this device, many times slower than 32-true: precision=auto avoids it")
    return "; ".join(parts)


def describe_runner(runner: Any) -> str:
    """Describes the device of a detector or generator: that of its model, or its engine."""
    seen = runner
    while seen is not None:
        model: Any = getattr(seen, "model", None)
        if hasattr(model, "parameters"):
            return describe(model, model.device)
        runner, seen = seen, getattr(seen, "engine", None)
    return f"by {type(runner).__name__}"


def to_bf16(model: Any) -> Any:
    """Casts a model to bf16, except the frequencies of rotary positions, which must not be rounded."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq")
    ]
    model.to(torch.bfloat16)
    for module, name, buffer in kept:
        setattr(module, name, buffer)
    return model


def place_model(model: Any, device: str | None, precision: str) -> tuple[Any, str]:
    """Puts a model of inference on a device; also returns the precision that it then computes in.

    Args:
        device: None takes a GPU if there is one.
        precision: 32-true, bf16, or auto: bf16 if the hardware supports it.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    used = resolve_precision(precision, device)
    model = model.eval().to(device)
    return (to_bf16(model) if used == "bf16" else model), used
