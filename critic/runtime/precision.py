"""Converts a model to the precision of scoring: fp32, bf16 or int8 with all other operations in bf16 or fp32."""

from collections.abc import Callable
from typing import Any

from critic.requests import Request
from critic.runtime.onnx_model import ONNX
from data_modules.encoding.encoder import question_text
from faithkit.arguments import read_choice
from faithkit.errors import UserError
from faithkit.fast import accelerate, can_quantise, computes_in_bf16, quantise, to_bf16
from faithkit.settings.types import DETECTOR_PRECISIONS


def apply_precision(model: Any, precision: str, device: str, calibrate: Callable[[], object]) -> Any:
    """Converts the model; `auto` is bf16 if the hardware supports it, int8 on other x86 CPUs.

    Args:
        calibrate: Runs the model on typical texts; int8 measures the ranges of activations on them.
    """
    check_precision(precision)
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "int8" if can_quantise(device) else "32-true"
    if precision == "bf16":
        model = to_bf16(model)
    if precision == "int8":
        if not can_quantise(device):
            raise UserError("int8 scoring is for x86 CPUs", hint="use bf16 on a GPU, else 32-true")
        quantise(model, calibrate)
        if computes_in_bf16(device):
            to_bf16(model)
    return model if precision == ONNX else accelerate(model)


def check_precision(precision: str) -> None:
    """Raises a UserError for an unknown precision."""
    read_choice("precision", precision, DETECTOR_PRECISIONS)


def calibration_pairs() -> tuple[list[str], list[str]]:
    """Returns fixed pairs with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 384))
    knowledge = [" ".join(e.knowledge for e in examples[i : i + 1 + i % 8]) for i in range(48)]
    return knowledge, [example.response for example in examples[:48]]


def calibration_requests() -> list[Request]:
    """Returns fixed requests with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 192))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(24)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]
